package bus

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/retry"
	"errand/internal/wire/mailkey"
)

// recipientsSubject holds the secret of recipients' keys, in the form of a RECIPIENT_KEY. It is stored once and never replaced.
const recipientsSubject = "keys.recipients"

// Where the streams with keys of recipients note the id of the secret in KEYS, and the ids of those that were in it and are lost.
const (
	secretNote = "errand.recipient-keys"
	lostNote   = "errand.recipient-keys-lost"
)

// ErrNoSecret says that the stream KEYS is not there, or has no secret.
var ErrNoSecret = errors.New("NATS has no secret of recipients' keys (stream KEYS): run `errand provision --missing` first")

// RecipientSecret reads the secret of recipients' keys. Errors: ErrNoSecret, or that no answer came in time.
func RecipientSecret(ctx context.Context, nc *nats.Conn) (s *mailkey.Secret, err error) {
	err = persist(ctx, nc, retry.Election, func(ctx context.Context) error {
		s, err = recipientSecret(ctx, nc)
		return err
	})
	return s, Explain(nc, err)
}

func recipientSecret(ctx context.Context, nc *nats.Conn) (*mailkey.Secret, error) {
	got, err := fromLeader(ctx, nc, Keys, lastOf(recipientsSubject)) // a replica that lags behind does not have it
	switch {
	case codeOf(err) == jetstream.JSErrCodeStreamNotFound, err == nil && got == nil:
		return nil, ErrNoSecret
	case err != nil:
		return nil, err
	}
	return mailkey.NewSecret(string(got.Data)), nil
}

// Secrets are the secrets that recipients' keys may be made with, for people's questions: RECIPIENT_KEY's, and the one in KEYS, which
// is read when a key of it is met. A nil *Secrets knows no secret.
type Secrets struct {
	Conn  *nats.Conn
	Given []*mailkey.Secret

	mu   sync.Mutex
	kept *mailkey.Secret
}

// Of returns the secret of an id; nil if this user does not know it.
func (s *Secrets) Of(ctx context.Context, id string) *mailkey.Secret {
	if s == nil {
		return nil
	}
	if i := slices.IndexFunc(s.Given, func(given *mailkey.Secret) bool { return given.ID() == id }); i >= 0 {
		return s.Given[i]
	}
	if kept := s.inKeys(ctx); kept != nil && kept.ID() == id {
		return kept
	}
	return nil
}

// all are the secrets that this user knows.
func (s *Secrets) all(ctx context.Context) (known []*mailkey.Secret) {
	if s == nil {
		return nil
	}
	known = slices.Clone(s.Given)
	if kept := s.inKeys(ctx); kept != nil {
		known = append(known, kept)
	}
	return known
}

// inKeys is the secret in KEYS, nil if this user may not read it: it is told what was not searched.
func (s *Secrets) inKeys(ctx context.Context) *mailkey.Secret {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept == nil && s.Conn != nil {
		s.kept, _ = recipientSecret(ctx, s.Conn)
	}
	return s.kept
}

// KeysOf are the keys that an address can have, as far as this user knows the secrets; none if it knows none.
func (s *Secrets) KeysOf(ctx context.Context, address string) (keys []mailkey.Key) {
	for _, secret := range s.all(ctx) {
		keys = append(keys, secret.KeyOf(address))
	}
	return keys
}

// LostSecrets are the ids of secrets that were in KEYS and are lost: nothing matches their keys.
func LostSecrets(deliveries jetstream.StreamConfig) []string {
	return strings.Fields(deliveries.Metadata[lostNote])
}

// planSecret plans the secret of recipients' keys, and the notes of it where keys are stored. A secret that was noted and is gone is not
// replaced silently.
func planSecret(ctx context.Context, js jetstream.JetStream, have installed) (plan []Change, err error) {
	var secret *mailkey.Secret
	if have.streams[Keys] != nil {
		err = persist(ctx, js.Conn(), retry.Election, func(ctx context.Context) error {
			secret, err = recipientSecret(ctx, js.Conn())
			return err
		})
		if err != nil && !errors.Is(err, ErrNoSecret) {
			return nil, err
		}
	}
	id, noted, lost := "", true, ""
	if secret != nil {
		id = secret.ID()
	}
	for _, stream := range keyed {
		note := ""
		if s := have.streams[stream]; s != nil {
			note = s.Config.Metadata[secretNote]
		}
		noted = noted && note == id
		if note != id && note != "" {
			lost = note
		}
	}
	if secret != nil && noted {
		return nil, nil
	}
	c := Change{Kind: "secret", Name: "of recipients' keys", Create: true, Destructive: lost != "",
		apply: patient(js, func(ctx context.Context) error { return makeSecret(ctx, js) })}
	if secret != nil {
		c.Kind, c.Name = "note", "of the secret of recipients' keys"
	}
	if lost != "" {
		c.Why = fmt.Sprintf("the secret %s is no longer in the stream %s: the keys of recipients that are stored were made with it. "+
			"Restore %s from a backup; with --force another secret takes its place: what is stored is then not found by its recipients, "+
			"and rows of mail that was sent before match no request. Restart mail-consumer and log-poller then", lost, Keys, Keys)
	}
	return []Change{c}, nil
}

// keyed are the streams that keep what depends on the secret; each notes which it is.
var keyed = []string{MailEvents, MailDeliveries}

// makeSecret stores a secret if there is none, and notes which one there is. Of several at once the first one's stays.
func makeSecret(ctx context.Context, js jetstream.JetStream) error {
	nc := js.Conn()
	secret, err := recipientSecret(ctx, nc)
	if errors.Is(err, ErrNoSecret) {
		m := &nats.Msg{Subject: recipientsSubject, Data: []byte(rand.Text() + rand.Text()), Header: nats.Header{}}
		Fence(m.Header, m.Subject, 0)
		if _, err = js.PublishMsg(ctx, m); err == nil || isConflict(err) {
			secret, err = recipientSecret(ctx, nc)
		}
	}
	for i := 0; i < len(keyed) && err == nil; i++ {
		err = noteSecret(ctx, js, keyed[i], secret.ID())
	}
	return err
}

func noteSecret(ctx context.Context, js jetstream.JetStream, stream, id string) error {
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return err
	}
	config := s.CachedInfo().Config
	was := config.Metadata[secretNote]
	if was == id {
		return nil
	}
	if config.Metadata == nil {
		config.Metadata = map[string]string{}
	}
	if lost := LostSecrets(config); was != "" && !slices.Contains(lost, was) {
		config.Metadata[lostNote] = strings.Join(append(lost, was), " ")
	}
	config.Metadata[secretNote] = id
	_, err = js.UpdateStream(ctx, config)
	return err
}
