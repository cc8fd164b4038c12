package deliveries

import (
	"fmt"
	"slices"

	"errand/pkg/clients/mail"
	"errand/pkg/messages"
)

// maxSecrets is how many secrets are known at once: two, while one is replaced, and the one in NATS.
const maxSecrets = 3

// Secrets are those that the mail consumer may have made the keys of addresses with, at most maxSecrets.
type Secrets []*messages.RecipientSecret

// UnknownSecretError means that records of calls have keys of an unknown secret. Until it is known nothing is published.
type UnknownSecretError struct {
	Request string
	ID      string // of the secret
}

func (e *UnknownSecretError) Error() string {
	return fmt.Sprintf("deliveries: the record of request %s has keys of the secret %s, which is not the one of log-poller: "+
		"give it the mail-consumer's RECIPIENT_KEY, or none as there, and start it again", e.Request, e.ID)
}

// check looks at the secret of a record.
func (l *Log) check(request string, b messages.SentBody) error {
	if b.Secret == nil || slices.Contains(l.LostSecrets, b.Secret.ID) ||
		slices.ContainsFunc(l.Secrets, func(known *messages.RecipientSecret) bool { return known.ID() == b.Secret.ID }) {
		return nil
	}
	return &UnknownSecretError{request, b.Secret.ID}
}

// add gives a row the keys that the secrets make.
func (s Secrets) add(r *row, e mail.Entry) {
	for i, known := range s {
		r.to[i], r.from[i] = known.KeyOf(e.To), known.KeyOf(e.From)
	}
}
