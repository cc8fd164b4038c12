package bus

import (
	"strings"
	"testing"

	"github.com/rs/zerolog"
)

// An address may hold a password, with signs in it that make it no address at all.
func TestAnAddressThatIsNoneIsNotQuoted(t *testing.T) {
	for _, address := range []string{
		"nats://me:hush@127.0.0.1:nowhere", "nats://me:hu%zzsh@127.0.0.1:4222", "nats://me:hush/hush@127.0.0.1:4222",
		"nats://127.0.0.1:4222,nats://me:hush@[::1", "me:hush\x01@127.0.0.1",
	} {
		nc, err := Connect(Connection{URL: address}, "test", zerolog.Nop())
		if err == nil {
			nc.Close()
			t.Errorf("%q is taken for an address", address)
			continue
		}
		if text := err.Error(); strings.Contains(text, "hu") || !strings.Contains(text, "NATS_URL: ") {
			t.Errorf("%q: %v", address, err)
		}
	}
}

// Without a user's name the inbox goes by the program, so that its permissions can.
func TestTheInboxGoesByUserOrProgram(t *testing.T) {
	for user, want := range map[string]string{"": "_INBOX_log-poller.", "me": "_INBOX_me.", "me.and *you>": "_INBOX_me_and__you_."} {
		nc, err := Connect(Connection{URL: "nats://127.0.0.1:1", User: user}, "log-poller", zerolog.Nop())
		if err != nil {
			t.Fatal(err)
		}
		if got := nc.NewInbox(); !strings.HasPrefix(got, want) {
			t.Errorf("user %q: %s, want %s…", user, got, want)
		}
		nc.Close()
	}
}
