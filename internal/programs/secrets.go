package programs

import (
	"slices"
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

// Secrets are those that are given, the one to make keys with first; none: plain hashes.
// Errors name the variable and do not quote it.
func (k *RecipientKey) Secrets() (all []*messages.RecipientSecret, err error) {
	texts, err := secretList("RECIPIENT_KEY", k.RecipientKey, k.RecipientKeyFile, "addresses could be tried with guesses of it")
	for _, text := range texts {
		all = append(all, messages.NewRecipientSecret(text))
	}
	return all, err
}

// Length and number of the secrets in a list.
const (
	minListed = 32
	maxListed = 2
)

// secretList reads secrets that are replaced one by one, separated by commas or white space,
// from a variable or the file that its _FILE variable names: none, one, or the new one and the
// one before. danger is what a short one would allow. Errors name the variable and do not quote it.
func secretList(variable, text, file, danger string) (all []string, err error) {
	if file != "" {
		if text != "" {
			return nil, &Invalid{variable, "set either it or " + variable + "_FILE, not both"}
		}
		variable += "_FILE"
		if text, err = keyfile.Read(file); err != nil {
			return nil, &Invalid{variable, err.Error()}
		}
	}
	for secret := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' || unicode.IsSpace(r) }) {
		switch {
		case len(secret) < minListed:
			return nil, &Invalid{variable, "has a secret of fewer than 32 characters: " + danger + "; make one with openssl rand -hex 32"}
		case slices.Contains(all, secret):
			return nil, &Invalid{variable, "has the same secret twice"}
		case len(all) == maxListed:
			return nil, &Invalid{variable, "has more than two secrets: the new one and the one before"}
		}
		all = append(all, secret)
	}
	if text != "" && len(all) == 0 {
		return nil, &Invalid{variable, "has no secret, only spaces or commas"}
	}
	return all, nil
}
