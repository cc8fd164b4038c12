package bus_test

import (
	"crypto/sha256"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nkeys"

	"errand/internal/bus"
	"errand/internal/sandbox/devkit/devtest"
)

// nats-server parses the values of variables as configuration: some that begin with ; are empty.
func TestAUserWhomTheServerLetsInWithoutItsPasswordIsNamed(t *testing.T) {
	const one = `authorization { users: [ { user: ann, password: $ANN_PASSWORD } ] }`
	for name, c := range map[string]struct{ config, password, want string }{
		"a good password":    {one, "0f7c39a1d2", ""},
		"its bcrypt hash":    {one, `$2a$04$zr.Kt3r3H7RkS5JXc3ZQWODsGRZUMWAk9cvMvZ6mZsMNHFDNZB3pG`, ""},
		"punctuation":        {one, `;b__<&+b0Ya)_}&_(Y:1c~9b`, "NATS user ann: the server let it in with an empty password"},
		"only a user's name": {`authorization { users: [ { user: ann, password: "" } ] }`, "", "NATS user ann: the server let it in with an empty password"},
		"no users":           {"", "", bus.ErrNoPasswords.Error()},
		"a user for anyone":  {"no_auth_user: ann\n" + one, "0f7c39a1d2", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("ANN_PASSWORD", c.password)
			n := devtest.Configured(t, c.config)
			err := bus.TryPasswords(bus.Connection{URL: n.URL, User: "provisioner", Password: "x"}, bus.Users)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if name == "no users" && !errors.Is(err, bus.ErrNoPasswords) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestTheUsersAreThoseOfTheShippedFile(t *testing.T) {
	var shipped []string
	devtest.Accounts(t, "../..", func(user string) string { shipped = append(shipped, user); return "" })
	slices.Sort(shipped)
	if have := slices.Sorted(slices.Values(bus.Users)); !slices.Equal(have, shipped) {
		t.Errorf("bus.Users are %v, the shipped ones %v", have, shipped)
	}
}

// Nobody can have made the seed of a key that is the hash of a sentence.
func TestTheKeyOfNobodyHasNoSeed(t *testing.T) {
	sum := sha256.Sum256([]byte("errand: nobody is admin"))
	key, err := nkeys.Encode(nkeys.PrefixByteUser, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	shipped, err := os.ReadFile("../../deploy/nats/emergency.conf")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(shipped), "nkey: "+string(key)+" }") {
		t.Errorf("the key of emergency.conf is not %s", key)
	}
}
