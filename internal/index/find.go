package index

import (
	"context"
	"errors"
	"time"

	"errand/pkg/messages"
)

// Found is a request that names what was looked for.
type Found struct {
	Row
	As []As `json:"as"` // how it names it
	// Mail is what the sending log last said of the mail to the address; nil: it says
	// nothing of it yet, or the request is not found as one that has it for a recipient.
	Mail *Mail `json:"mail,omitempty"`
}

// As says how a request names what it is found by.
type As string

// How a request is found.
const (
	AsID        As = "request id"
	AsOrder     As = "order number"
	AsPayer     As = "payer"
	AsRecipient As = "recipient"
)

// Mail is what the sending log says of the mail to an address.
type Mail struct {
	State    messages.State `json:"state"` // delivered, deferred, bounced, unknown
	SMTP     int            `json:"smtp,omitempty"`
	At       time.Time      `json:"at"`       // when it was seen there
	Sequence uint64         `json:"sequence"` // of the event in MAIL_DELIVERIES
}

// Finding is what was found, the newest first.
type Finding struct {
	Found []Found `json:"found"`
	// Mails are to the address, and no request is sure to be meant by them.
	Mails []Mail `json:"mails,omitempty"`
	// Unread are the ids of secrets that records of recipients are made with and that are
	// not known here: whether they hold the address cannot be told.
	Unread []string `json:"unread,omitempty"`
}

// Find gives the requests of an id, an order number or an address, 500 of each at most.
func (x *Index) Find(ctx context.Context, word string) (Finding, error) { return Finding{}, nil }

// ErrToken says that a token was not made with this index's key, or not by Seal.
var ErrToken = errors.New("the link is not, or no longer, valid")

// Seal encrypts a word with the index's key, for a link that leads to it and shows nothing
// of it to those who have the link and not the key.
func (x *Index) Seal(word string) string { return "" }

// Unseal gives the word that was sealed. Errors: ErrToken.
func (x *Index) Unseal(token string) (string, error) { return "", ErrToken }
