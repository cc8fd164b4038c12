package bus

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"

	"errand/internal/retry"
	"errand/internal/wire/mailkey"
	"errand/pkg/messages"
)

// Sought is what a console is asked for.
type Sought struct {
	Word string                 `json:"word"`
	Keys map[string]mailkey.Key `json:"keys,omitempty"` // of the word, by the id of the secret: those that who asks may know
}

// Known is what the index of a console knows of a word. It is read from the same messages in the same way as inspect.Reader.Find does, so
// who has it needs to read what was stored since alone.
type Known struct {
	Through  map[string]uint64 `json:"through"` // sequence of the last message of each stream that the index has
	Requests []KnownRequest    `json:"requests,omitempty"`
	Messages []Place           `json:"messages,omitempty"` // which say more: rows of the sending log, and what is of no request
	Unread   []string          `json:"unread,omitempty"`   // ids of the secrets of which the key was not given
	More     bool              `json:"more,omitempty"`     // there is more than an answer holds
}

// KnownRequest is a request that names the word as something.
type KnownRequest struct {
	Operation messages.Operation `json:"operation"`
	ID        string             `json:"request_id"`
	As        string             `json:"as"` // see names.As
}

// Place is where a message is.
type Place struct {
	Stream   string `json:"stream"`
	Sequence uint64 `json:"sequence"`
}

// findSubjects are where consoles are asked, one of each account that they may be in. An account exports its own to the other one.
var findSubjects = []string{"errand.find.people", "errand.find.operators"}

// AnswerFind answers what is asked there until the connection is closed. Only an inbox gets the answer: published to another subject
// of who asks, it would be with the rights of the console. A missing right is only logged, by the connection.
func AnswerFind(nc *nats.Conn, find func(context.Context, Sought) (Known, error)) error {
	_, err := nc.Subscribe("errand.find.*", func(m *nats.Msg) {
		var asked Sought
		if !strings.HasPrefix(m.Reply, "_INBOX") && !strings.HasPrefix(m.Reply, "_R_.") || json.Unmarshal(m.Data, &asked) != nil {
			return
		}
		ctx, done := context.WithTimeout(context.Background(), retry.FindAnswer)
		defer done()
		if known, err := find(ctx, asked); err == nil {
			body, _ := json.Marshal(known) // texts and numbers always encode
			_ = m.Respond(body)            // without an answer, everything is read
		}
	})
	if err != nil {
		return fmt.Errorf("nats: answer what the index knows: %w", err)
	}
	return nil
}

// Sought is what is asked for with a word: with its keys, if it is an address.
func (s *Secrets) Sought(ctx context.Context, word string) Sought {
	asked := Sought{Word: word, Keys: map[string]mailkey.Key{}}
	if strings.Contains(word, "@") {
		for _, secret := range s.all(ctx) {
			asked.Keys[secret.ID()] = secret.KeyOf(word)
		}
	}
	return asked
}

// AskFind asks the consoles: the first answer counts. false means that none answers within retry.FindAnswer, or that there is more than
// an answer holds.
func AskFind(ctx context.Context, nc *nats.Conn, asked Sought) (Known, bool) {
	body, _ := json.Marshal(asked) // texts and numbers always encode
	ctx, done := context.WithTimeout(ctx, retry.FindAnswer)
	defer done()
	answers := make(chan *Known, len(findSubjects))
	for _, subject := range findSubjects {
		go func() { // which ends with ctx
			known := new(Known)
			m, err := nc.RequestWithContext(ctx, subject, body)
			if err != nil || json.Unmarshal(m.Data, known) != nil || known.More {
				known = nil
			}
			answers <- known
		}()
	}
	for range findSubjects {
		if known := <-answers; known != nil {
			return *known, true
		}
	}
	return Known{}, false
}
