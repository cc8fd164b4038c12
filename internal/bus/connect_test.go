package bus

import (
	"path/filepath"
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

func TestServersAreNamedWithoutWhatOpensThem(t *testing.T) {
	got := strings.Join(Connection{URL: "nats://me:hush@a:4222, tls://token@b,c"}.Servers(), " ")
	if want := "nats://a:4222 tls://b nats://c"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// What names no server is refused: nothing would ever answer there.
func TestOnlyAddressesOfServersAreTaken(t *testing.T) {
	for address, ok := range map[string]bool{
		"": false, ",": false, " ": false, "nats://": false, ":4222": false, ":::": false, "nats://127.0.0.1:99999": false, "127.0.0.1:0": false,
		"127.0.0.1:port": false, "not an address": false, "ftp://127.0.0.1:4222": false,
		"http://127.0.0.1": false, "nats://a,nats://b c": false, "nats://%zz": false,
		"127.0.0.1": true, "nats": true, "nats:4222": true,
		"nats://nats.nats.svc:4222": true, "tls://a, tls://b:4443 ,c": true, "nats://[::1]:4222": true,
		"ws://127.0.0.1:8080": true, "wss://nats.example.test/path": true, "nats://me:hush@127.0.0.1/": true, "nats://a,": true,
	} {
		if err := (Connection{URL: address}).Validate(); (err == nil) != ok {
			t.Errorf("%q: %v, want it taken: %v", address, err, ok)
		}
	}
}

// A password or token travels over TLS or to this machine only, unless that is allowed.
func TestNoPasswordTravelsInTheClear(t *testing.T) {
	for name, c := range map[string]struct {
		connection Connection
		ok         bool
	}{
		"no password":               {Connection{URL: "nats://nats.example.test"}, true},
		"a password":                {Connection{URL: "nats://nats.example.test", User: "me", Password: "hush"}, false},
		"a password in a file":      {Connection{URL: "nats.example.test:4222", User: "me", PasswordFile: "file"}, false},
		"a password in the address": {Connection{URL: "nats://me:hush@nats.example.test"}, false},
		"a token":                   {Connection{URL: "nats://hush@nats.example.test"}, false},
		"on one of several servers": {Connection{URL: "tls://nats.example.test,nats://10.0.0.1", User: "me", Password: "hush"}, false},
		"over a websocket":          {Connection{URL: "ws://nats.example.test", User: "me", Password: "hush"}, false},
		"a name like ours":          {Connection{URL: "nats://localhost.example.test", User: "me", Password: "hush"}, false},
		"to this machine":           {Connection{URL: "nats://127.0.0.1,nats://[::1]:4223,localhost", User: "me", Password: "hush"}, true},
		"over TLS":                  {Connection{URL: "tls://nats.example.test", User: "me", Password: "hush"}, true},
		"with an authority":         {Connection{URL: "nats://nats.example.test", User: "me", Password: "hush", CA: "file"}, true},
		"with a seed":               {Connection{URL: "nats://nats.example.test", Nkey: "file"}, true},
		"allowed":                   {Connection{URL: "nats://nats.example.test", User: "me", Password: "hush", AllowPlain: true}, true},
	} {
		err := c.connection.Validate()
		if (err == nil) != c.ok || err != nil && (strings.Contains(err.Error(), "hush") || !strings.Contains(err.Error(), "ALLOW_PLAIN_NATS")) {
			t.Errorf("%s: %v, want it taken: %v", name, err, c.ok)
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

// A person who mistyped a path must not look for the mistake in the address of the servers.
func TestAFileThatCannotBeUsedIsRefusedByItsSetting(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	for want, c := range map[string]Connection{
		"NATS_CREDS: ": {Creds: missing}, "NATS_NKEY: ": {Nkey: missing}, "NATS_CA: ": {CA: missing},
		"NATS_CERT: ": {Cert: missing, Key: missing},
	} {
		c.URL = "nats://127.0.0.1:1"
		nc, err := Connect(c, "test", zerolog.Nop())
		if err == nil {
			nc.Close()
			t.Errorf("%s: a missing file is taken", want)
			continue
		}
		if text := err.Error(); !strings.HasPrefix(text, want) || !strings.Contains(text, missing) {
			t.Errorf("%q, want it to begin with %q and to name the file", text, want)
		}
	}
}
