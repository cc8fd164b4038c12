// Package mandate is the client of the direct debit e-mandate service: it creates enrollments and lists transactions.
// Shapes and names are the e-mandate document's. Every error is a *clients.Error; its Fate says what is known of the call.
//
//	Enroll        POST {URL}/v3/mandates, or {V2URL}/api/v2/mandates
//	Transactions  GET  {URL}/v3/mandates/transactions, page by page
package mandate

import (
	"fmt"
	"sync/atomic"

	"errand/pkg/clients"
)

// Config is where the service is and who calls it.
type Config struct {
	URL     string // address of the v3 interface; always needed, the transaction list exists in v3 only
	V2URL   string // address of the v2 interface; needed with Version v2
	Version string // interface that enrollments go to: v3 (default) or v2

	Token          clients.Secret // personal access token; both interfaces carry it. For v2 not shown by the upstream; assumed.
	PortalKey      clients.Secret // put into enrollments that name none
	ChecksumSecret clients.Secret // signs enrollments that carry no checksum; never sent. Empty: they go without

	AmountFormat string // form of the amount that is sent and signed: "" shortest (100, 100.5), "fixed2" two decimals (100.00)
}

// fixed2 is the amount format with two decimals.
const fixed2 = "fixed2"

// Client calls the service. It is safe for concurrent use.
type Client struct {
	config *atomic.Pointer[Config] // replaced by SetCredentials
	v3     *clients.Upstream
	enroll *clients.Upstream
	path   string // of the enrollment operation
}

// New checks the configuration; an error names the field and what is wrong with it.
func New(config Config, options ...clients.Option) (*Client, error) {
	if config.Version == "" {
		config.Version = "v3"
	}
	if config.Version != "v3" && config.Version != "v2" {
		return nil, fmt.Errorf("mandate: Version is %q, want v3 or v2", config.Version)
	}
	if config.AmountFormat != "" && config.AmountFormat != fixed2 {
		return nil, fmt.Errorf("mandate: AmountFormat is %q, want %q or nothing", config.AmountFormat, fixed2)
	}
	if config.Token.Empty() {
		return nil, fmt.Errorf("mandate: Token is missing")
	}
	v3, err := open("mandate: URL", config.URL, config, options)
	if err != nil {
		return nil, err
	}
	c := &Client{config: new(atomic.Pointer[Config]), v3: v3, enroll: v3, path: "/v3/mandates"}
	c.config.Store(&config)
	if config.Version == "v2" {
		if c.enroll, err = open("mandate: V2URL", config.V2URL, config, options); err != nil {
			return nil, err
		}
		c.path = "/api/v2/mandates"
	}
	return c, nil
}

// SetCredentials replaces the secrets for calls that begin from now on, and reports whether any has changed. After an error
// the old ones stay.
func (c *Client) SetCredentials(token, portalKey, checksumSecret clients.Secret) (changed bool, err error) {
	if token.Empty() {
		return false, fmt.Errorf("mandate: Token is missing")
	}
	before := c.config.Load()
	after := *before
	after.Token, after.PortalKey, after.ChecksumSecret = token, portalKey, checksumSecret
	for _, upstream := range []*clients.Upstream{c.v3, c.enroll} {
		if err := upstream.SetCredentials(header(after), portalKey, checksumSecret); err != nil {
			return false, err
		}
	}
	c.config.Store(&after)
	return !token.Equal(before.Token) || !portalKey.Equal(before.PortalKey) || !checksumSecret.Equal(before.ChecksumSecret), nil
}

func header(config Config) map[string]clients.Secret {
	return map[string]clients.Secret{"Authorization": config.Token}
}

func open(field, url string, config Config, options []clients.Option) (*clients.Upstream, error) {
	return clients.NewUpstream(clients.Origin{
		Field:   field,
		URL:     url,
		Header:  header(config),
		Prefix:  "Bearer ",
		Secrets: []clients.Secret{config.PortalKey, config.ChecksumSecret},
		Hidden:  []string{"portal_key"}, // an answer may quote another request's, which is not known here
	}, options...)
}
