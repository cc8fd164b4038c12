package bus

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"
)

// Users are the users in deploy/nats/errand.conf.
var Users = []string{"mandate-consumer", "mail-consumer", "log-poller", "transaction-poller", "callback-receiver", "provisioner",
	"service", "producer", "subscriber", "ann", "olga", "eraser", "console", "console-act", "admin", "system"}

// ErrNoPasswords means that the servers let in anyone.
var ErrNoPasswords = errors.New("NATS asks for no password: anyone may connect, or anyone with a certificate")

// TryPasswords reports a user whom the servers let in without a password, or with a wrong one: nats-server parses the values of its
// variables, so that some passwords are empty to it. Users that the servers do not have are refused like wrong passwords.
func TryPasswords(to Connection, users []string) error {
	if to.letsIn("errand-"+rand.Text(), rand.Text()) {
		return ErrNoPasswords
	}
	for _, user := range users {
		with := "an empty password"
		letIn := to.letsIn(user, "")
		if !letIn {
			with = "a wrong password"
			letIn = to.letsIn(user, rand.Text())
		}
		if letIn {
			return fmt.Errorf("NATS user %s: the server let it in with %s; give the servers and the user the output of `openssl rand -hex 32`: "+
				"punctuation in a variable is configuration to nats-server", user, with)
		}
	}
	return nil
}

// letsIn reports whether any of the servers accepts a user with a password. Without a connection, none does.
func (c Connection) letsIn(user, password string) bool {
	as := Connection{URL: strings.Join(c.Servers(), ","), User: user, Password: password, CA: c.CA, Cert: c.Cert, Key: c.Key,
		TLSName: c.TLSName, Dialer: c.Dialer}
	opts, err := as.identity(zerolog.Nop())
	if err != nil {
		return false
	}
	if c.Dialer != nil {
		opts = append(opts, nats.SetCustomDialer(c.Dialer))
	}
	nc, err := nats.Connect(as.URL, append(opts, nats.NoReconnect(), nats.IgnoreDiscoveredServers())...)
	if err == nil {
		nc.Close()
	}
	return err == nil || errors.Is(err, nats.ErrMaxAccountConnectionsExceeded) // which it says after the password
}
