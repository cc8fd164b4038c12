package deliveries

import (
	"fmt"
	"slices"

	"errand/pkg/clients/mail"
	"errand/pkg/messages"
)

// maxSecrets is how many secrets are known at once: two, while one is replaced.
const maxSecrets = 2

// Secrets are those that the mail consumer may have made the keys of addresses with, at most maxSecrets; keys are plain hashes
// without any.
type Secrets []*messages.RecipientSecret

// UnknownSecretError means that records of calls have keys of an unknown secret. Until it is known nothing is published.
type UnknownSecretError struct {
	Request string
	ID      string // of the secret
}

func (e *UnknownSecretError) Error() string {
	return fmt.Sprintf("deliveries: the record of request %s has keys of the secret %s, which is not in RECIPIENT_KEY: "+
		"give log-poller the mail-consumer's, and start it again", e.Request, e.ID)
}

// check looks at the secret of a record.
func (s Secrets) check(request string, b messages.SentBody) error {
	if b.Secret == nil || slices.ContainsFunc(s, func(known *messages.RecipientSecret) bool { return known.ID() == b.Secret.ID }) {
		return nil
	}
	return &UnknownSecretError{request, b.Secret.ID}
}

// add gives a row the keys that the secrets make.
func (s Secrets) add(r *row, e mail.Entry) {
	for i, known := range s {
		r.to[1+i], r.from[1+i] = known.KeyOf(e.To), known.KeyOf(e.From)
	}
}
