package programs

import (
	"context"
	"testing"
	"time"

	"errand/internal/sandbox/devkit/devtest"
)

// A program that is stopped before NATS answers had no work: its end is not a failure.
func TestAProgramThatIsStoppedWhileJetStreamStartsExitsWithZero(t *testing.T) {
	devtest.Full(t)
	t.Setenv("ADMIN_ADDR", "127.0.0.1:0")
	t.Setenv("MAIL_API_URL", "https://127.0.0.1:1")
	t.Setenv("MAIL_API_KEY", "a-long-key-of-a-test")
	for name, c := range map[string]struct {
		after  time.Duration
		config string
	}{
		"no JetStream": {time.Second, `accounts { A { users = [{user: a, password: b}] } }`},
		"no answer": {6 * time.Second, `accounts { A { jetstream: enabled, users = [{user: a, password: b,
			permissions: {publish: {deny: ["$JS.API.CONSUMER.INFO.>"]}}}] } }`},
	} {
		t.Run(name, func(t *testing.T) {
			server := devtest.Configured(t, c.config)
			t.Setenv("NATS_URL", server.URL)
			t.Setenv("NATS_USER", "a")
			t.Setenv("NATS_PASSWORD", "b")
			ctx, sigterm := context.WithCancel(t.Context())
			time.AfterFunc(c.after, sigterm)
			if got := run(ctx, "mail-consumer", "", new(MailConsumer), nil); got != 0 {
				t.Errorf("exit status %d, want 0", got)
			}
		})
	}
}
