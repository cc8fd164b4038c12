package programs

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/rs/zerolog"

	"errand/internal/bus"
	"errand/internal/keyfile"
	"errand/internal/wire/mailkey"
	"errand/pkg/clients"
)

// RecipientKey is the secret of the keys of recipients in events, the same for their writer and reader.
type RecipientKey struct {
	RecipientKey     string `env:"RECIPIENT_KEY" help:"Secret of at least 32 characters for the keys of recipients in events, the same for mail-consumer and log-poller; default: the one that errand provision made. While it is replaced, two, separated by a comma or a line break: the new one first." group:"program"`
	RecipientKeyFile string `env:"RECIPIENT_KEY_FILE" placeholder:"FILE" help:"File with that secret, or two." group:"program"`
}

// Secrets returns the given secrets, the one to make keys with first; none means the one in NATS. Errors do not quote them.
func (k *RecipientKey) Secrets() (all []*mailkey.Secret, err error) {
	texts, err := secretList("RECIPIENT_KEY", k.RecipientKey, k.RecipientKeyFile, "addresses could be tried with guesses of it")
	for _, text := range texts {
		all = append(all, mailkey.NewSecret(text))
	}
	return all, err
}

// recipientSecrets returns up to n secrets of recipients' keys: those given, and the one in NATS where there are fewer. Errors:
// bus.ErrNoSecret or a missing right, where none is given.
func (r *runtime) recipientSecrets(ctx context.Context, given []*mailkey.Secret, n int) ([]*mailkey.Secret, error) {
	from := "RECIPIENT_KEY"
	if len(given) < n {
		kept, err := bus.RecipientSecret(ctx, r.nc)
		switch {
		case len(given) == 0 && err != nil:
			return nil, err
		case len(given) == 0:
			given, from = append(given, kept), "stream "+bus.Keys
		case err == nil && kept.ID() != given[0].ID():
			given = append(given, kept)
		}
	}
	r.log.Info().Str("secret", given[0].ID()).Str("from", from).Msg("recipients' keys are made with a secret")
	return given, nil
}

// CallbackSecrets are the secret that each return_url is made with, the same for its maker and its receiver.
type CallbackSecrets struct {
	CallbackSecret     string `name:"callback-secret" env:"MANDATE_CALLBACK_SECRET" help:"Secret of at least 32 characters that each return_url is made with, the same for mandate-consumer and callback-receiver. While it is replaced, two, separated by a comma or a line break: the new one first." group:"program"`
	CallbackSecretFile string `name:"callback-secret-file" env:"MANDATE_CALLBACK_SECRET_FILE" placeholder:"FILE" help:"File with that secret, or two." group:"program"`
}

// secrets returns the given secrets, the one to make addresses with first.
func (c *CallbackSecrets) secrets() (all []clients.Secret, err error) {
	texts, err := secretList("MANDATE_CALLBACK_SECRET", c.CallbackSecret, c.CallbackSecretFile, "anybody could find it and send callbacks")
	for _, text := range texts {
		all = append(all, clients.NewSecret(text))
	}
	return all, err
}

// secretText returns a secret from its variable, or the text of the file that its _FILE variable names, and
// which of the two it comes from; empty if neither is set. Errors name the variable and do not quote it.
func secretText(variable, value, file string) (text, from string, err error) {
	switch {
	case file == "":
		return value, variable, nil
	case value != "":
		return "", variable, &Invalid{variable, "set either it or " + variable + "_FILE, not both"}
	}
	variable += "_FILE"
	if text, err = keyfile.Read(file); err != nil {
		err = &Invalid{variable, err.Error()}
	}
	return text, variable, err
}

// secret reads one secret, which must be fit for an HTTP header.
func secret(variable, value, file string) (clients.Secret, error) {
	text, variable, err := secretText(variable, value, file)
	if err == nil && strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		err = &Invalid{variable, "contains spaces or characters that cannot be sent; is it the right value?"}
	}
	return clients.NewSecret(text), err
}

// Length and number of the secrets in a list.
const (
	minListed = 32
	maxListed = 2
)

// secretList reads a secret that is replaced without a break: none, one, or the new one first. danger: what a short one
// allows.
func secretList(variable, value, file, danger string) (all []string, err error) {
	text, variable, err := secretText(variable, value, file)
	if err != nil {
		return nil, err
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
	return all, invalidIf(text != "" && len(all) == 0, variable, "has no secret, only spaces or commas")
}

// reload reads secrets from their files again when the upstream refuses them, so that a new secret needs no restart.
type reload struct {
	every time.Duration // minimum time between two reloads: the interval of probes
	log   zerolog.Logger
	// secrets sets the client's secrets to the current ones and reports whether any has changed. After an error, which
	// quotes no secret, the client keeps those it has.
	secrets func() (changed bool, err error)

	mu        sync.Mutex
	next      time.Time // no reload before
	lastError string    // of the last reload
}

// observe is called with every call to the upstream.
func (r *reload) observe(c clients.Call) {
	if c.Fate != clients.Held || c.Status != http.StatusUnauthorized && c.Status != http.StatusForbidden {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if now.Before(r.next) {
		return
	}
	r.next = now.Add(r.every)
	changed, err := r.secrets()
	problem := fmt.Sprint(err)
	switch {
	case err != nil && problem != r.lastError:
		r.log.Warn().Err(err).Msg("secrets cannot be read again, the old ones are kept")
	case changed:
		r.log.Info().Int("status", c.Status).Msg("credentials reloaded")
	}
	r.lastError = problem
}
