package app

import (
	"strings"
	"unicode"

	"errand/internal/keyfile"
	"errand/pkg/messages"
)

// RecipientKey is the secret that the keys of recipients on mail.log.sent are made with.
// The program that leaves the records and the one that reads them have the same.
type RecipientKey struct {
	RecipientKey     string `env:"RECIPIENT_KEY" help:"Secret of at least 32 characters for the keys of recipients on mail.log.sent, the same for mail-consumer and log-poller; default: plain hashes. While it is replaced, two, separated by a comma or a line break: the new one first." group:"program"`
	RecipientKeyFile string `env:"RECIPIENT_KEY_FILE" placeholder:"FILE" help:"File with that secret, or two." group:"program"`
}

// Length and number of the secrets.
const (
	minRecipientKey  = 32
	maxRecipientKeys = 2
)

// Secrets are those that are given, the one to make keys with first; none: plain hashes.
// Errors name the variable and do not quote it.
func (k *RecipientKey) Secrets() (all []*messages.RecipientSecret, err error) {
	variable, text := "RECIPIENT_KEY", k.RecipientKey
	if k.RecipientKeyFile != "" {
		if text != "" {
			return nil, &Invalid{variable, "set either it or RECIPIENT_KEY_FILE, not both"}
		}
		variable = "RECIPIENT_KEY_FILE"
		if text, err = keyfile.Read(k.RecipientKeyFile); err != nil {
			return nil, &Invalid{variable, err.Error()}
		}
	}
	seen := map[string]bool{}
	for secret := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' || unicode.IsSpace(r) }) {
		switch {
		case len(secret) < minRecipientKey:
			return nil, &Invalid{variable, "has a secret of fewer than 32 characters: addresses could be tried with guesses of it; make one with openssl rand -hex 32"}
		case seen[secret]:
			return nil, &Invalid{variable, "has the same secret twice"}
		case len(all) == maxRecipientKeys:
			return nil, &Invalid{variable, "has more than two secrets: the new one and the one before"}
		}
		seen[secret] = true
		all = append(all, messages.NewRecipientSecret(secret))
	}
	if text != "" && len(all) == 0 {
		return nil, &Invalid{variable, "has no secret, only spaces or commas"}
	}
	return all, nil
}
