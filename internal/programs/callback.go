package programs

import (
	"errand/internal/callback"
	"errand/pkg/clients"
)

// CallbackSecrets are the secret that each return_url is made with. The program that makes
// them and the one that takes what is sent there have the same.
type CallbackSecrets struct {
	CallbackSecret     string `name:"callback-secret" env:"MANDATE_CALLBACK_SECRET" help:"Secret of at least 32 characters that each return_url is made with, the same for mandate-consumer and callback-receiver. While it is replaced, two, separated by a comma or a line break: the new one first." group:"program"`
	CallbackSecretFile string `name:"callback-secret-file" env:"MANDATE_CALLBACK_SECRET_FILE" placeholder:"FILE" help:"File with that secret, or two." group:"program"`
}

// Secrets are those that are given, the one to make addresses with first.
func (c *CallbackSecrets) Secrets() (all []clients.Secret, err error) {
	texts, err := secretList("MANDATE_CALLBACK_SECRET", c.CallbackSecret, c.CallbackSecretFile, "anybody could find it and send callbacks")
	for _, text := range texts {
		all = append(all, clients.NewSecret(text))
	}
	return all, err
}

// Callbacks say where the service sends what becomes of an enrollment.
type Callbacks struct {
	CallbackURL string `name:"callback-url" env:"MANDATE_CALLBACK_URL" placeholder:"URL" help:"Where callback-receiver is reached from outside, such as https://callbacks.example.com/mandates: the return_url of enrollments without one is made of it. Default: none." group:"program"`
	CallbackSecrets
}

// addresses make the return_url of enrollments without one; nil: they go without.
func (c *Callbacks) addresses(plain bool) (func(id string) string, error) {
	secrets, err := c.Secrets()
	switch {
	case err != nil:
		return nil, err
	case c.CallbackURL == "" && len(secrets) == 0:
		return nil, nil
	case c.CallbackURL == "":
		return nil, &Invalid{"MANDATE_CALLBACK_URL", "is not set, and MANDATE_CALLBACK_SECRET is: where is callback-receiver reached?"}
	case len(secrets) == 0:
		return nil, &Invalid{"MANDATE_CALLBACK_SECRET", "is not set, and MANDATE_CALLBACK_URL is: the same secret as callback-receiver has (or MANDATE_CALLBACK_SECRET_FILE)"}
	}
	a, err := callback.NewAddresses(c.CallbackURL, plain, secrets[0])
	if err != nil {
		return nil, &Invalid{"MANDATE_CALLBACK_URL", err.Error()}
	}
	return a.URL, nil
}
