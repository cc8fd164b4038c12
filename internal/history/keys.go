package history

import (
	"errand/internal/wire/mailkey"
	"errand/pkg/messages"
)

// KeysOf are the keys of a sender, "" if none is named, and recipients.
func KeysOf(s *mailkey.Secret, from string, to []string) *messages.SecretKeys {
	return &messages.SecretKeys{ID: s.ID(), Keys: s.KeysOf(from, to)}
}

// KeysIn returns the keys on an event; nil if it has none.
func KeysIn(s messages.Subject, body []byte) *messages.SecretKeys {
	var e struct {
		Secret *messages.SecretKeys `json:"secret"`
	}
	if s.State != messages.Started || s.Operation != messages.Send && s.Operation != messages.Batch || messages.DecodeEvent(body, &e) != nil {
		return nil
	}
	return e.Secret
}
