// Package mail is the client of the outbound email service: it submits messages, reads the sending log and the account.
// Shapes and names are the email document's. Every error is a *clients.Error; its Fate says what is known of the call.
//
//	Send     POST {URL}/api/v0/messages
//	LogPage  GET  {URL}/api/v0/logs
//	Account  GET  {URL}/api/v0/user
package mail

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"

	"errand/pkg/clients"
)

// Config is where the service is and who calls it.
type Config struct {
	URL string
	Key clients.Secret
	// HeadersAsList sends the headers of a message as a list of "Name: value" instead of an object. The format of the field is not shown by
	// the upstream; both are assumed.
	HeadersAsList bool
}

// Client calls the service. It is safe for concurrent use.
type Client struct {
	upstream      *clients.Upstream
	key           *atomic.Pointer[clients.Secret] // replaced by SetCredentials
	headersAsList bool
}

// New checks the configuration; an error names the field and what is wrong with it.
func New(config Config, options ...clients.Option) (*Client, error) {
	if config.Key.Empty() {
		return nil, fmt.Errorf("mail: Key is missing")
	}
	upstream, err := clients.NewUpstream(clients.Origin{
		Field:  "mail: URL",
		URL:    config.URL,
		Header: header(config.Key),
	}, options...)
	if err != nil {
		return nil, err
	}
	c := &Client{upstream: upstream, key: new(atomic.Pointer[clients.Secret]), headersAsList: config.HeadersAsList}
	c.key.Store(&config.Key)
	return c, nil
}

// SetCredentials replaces the key for calls that begin from now on, and reports whether it has changed. After an error the old
// one stays.
func (c *Client) SetCredentials(key clients.Secret) (changed bool, err error) {
	if key.Empty() {
		return false, fmt.Errorf("mail: Key is missing")
	}
	if err := c.upstream.SetCredentials(header(key)); err != nil {
		return false, err
	}
	return !c.key.Swap(&key).Equal(key), nil
}

func header(key clients.Secret) map[string]clients.Secret {
	return map[string]clients.Secret{"X-API-Key": key}
}

// envelope is around the body of every answer, good or bad.
type envelope[Data any] struct {
	Error      *bool       `json:"error"`
	StatusCode json.Number `json:"status_code"`
	Data       Data        `json:"data"`
}

// open reads an answer and whether it is a success whose data is complete.
func open[Data any](status int, body []byte, complete func(Data) bool) clients.Reading {
	var e envelope[Data]
	// A field of an unexpected type leaves the others readable: the status code counts even beside odd data.
	err := json.Unmarshal(body, &e)
	code, codeErr := strconv.Atoi(string(e.StatusCode))
	verdict := &clients.Envelope{Error: e.Error != nil && *e.Error, StatusCode: code}
	reading := clients.Reading{Envelope: verdict}
	judged := e.Error != nil && (e.StatusCode == "" || codeErr == nil && code != 0)
	if status/100 == 2 && err == nil && judged && !verdict.Error && complete(e.Data) {
		reading.Complete = true
		if code == 0 || code/100 == 2 {
			return reading
		}
	}
	reading.Message, reading.Fields = clients.ParseError(body)
	return reading
}

// number is an integer that may come quoted; anything else is 0, and other fields are still read.
type number int

func (n *number) UnmarshalJSON(raw []byte) error {
	value, _ := strconv.Atoi(strings.Trim(string(raw), `"`))
	*n = number(value)
	return nil
}

// object is the JSON object in raw, if it is one.
func object(raw json.RawMessage) (json.RawMessage, bool) {
	raw = bytes.TrimSpace(raw)
	return raw, len(raw) > 0 && raw[0] == '{'
}
