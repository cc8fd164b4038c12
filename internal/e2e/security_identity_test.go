//go:build unix

package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"errand/internal/devkit"
)

// instead replaces how a user of the shipped configuration proves who it is.
func instead(t *testing.T, config, user, proof string) string {
	t.Helper()
	old := fmt.Sprintf("user: %s\n        password: $%s", user, variable(user))
	if !strings.Contains(config, old) {
		t.Fatalf("the shipped configuration has no %q", old)
	}
	config = strings.Replace(config, old, proof, 1)
	before, rest, _ := strings.Cut(config, variable(user)) // the server does not take one that nothing names
	return before + strings.SplitAfterN(rest, "\n", 2)[1]
}

// under is an installation on a server with that configuration, where all but the
// programs is done by the admin, who connects with options.
func under(t *testing.T, config string, admin ...nats.Option) *installation {
	t.Helper()
	dir := shipped.programs(t)
	beside(t)
	n, err := devkit.Configured(t.TempDir(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	in := furnish(t, dir, n.URL, "NATS_USER=", "NATS_PASSWORD=")
	nc := connect(t, n.URL, admin...)
	if in.js, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	in.n, in.asks, in.hears = n, in.js, in.js
	in.provision(nc, 1)
	t.Cleanup(in.end)
	return in
}

// works starts a program and has it tell something.
func (in *installation) works(program string, env ...string) {
	in.t.Helper()
	p := in.start(program, env...)
	asks := map[string]string{"mandate-consumer": "mandate.transactions.requested", "mail-consumer": "mail.account.requested"}
	tells := map[string]string{"mandate-consumer": "mandate.transactions.listed.*", "mail-consumer": "mail.account.reported.*", "log-poller": "mail.log.watermark"}
	if subject := asks[program]; subject != "" {
		in.publish(subject, map[string]any{})
	} else {
		in.send("logged")
	}
	in.until(program+" to work", 30*time.Second, func() bool { return in.count(tells[program]) > 0 })
	if status, why := p.get("/readyz"); status != http.StatusOK {
		in.t.Errorf("%s works and is not ready: %s", program, why)
	}
	p.stop(10 * time.Second)
}

// keptOut starts a program with each of the environments and waits until each says why
// it is not let in, in one line.
func (in *installation) keptOut(program string, envs map[string][]string) {
	in.t.Helper()
	started := map[string]*process{}
	for why, env := range envs {
		started[why] = in.start(program, env...)
	}
	for why, p := range started {
		in.until(fmt.Sprintf("%s to say %q", program, why), 40*time.Second, func() bool {
			return p.says(`"level":"warn"`, "no server answers yet", why)
		})
		if status, body := p.get("/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, "not connected to NATS") {
			in.t.Errorf("/readyz: %d %s", status, body)
		}
		p.stop(10 * time.Second) // told to end before NATS let it in
	}
}

func secretFile(t *testing.T, name, text string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// nkey makes an nkey.
func nkey(t *testing.T, make func() (nkeys.KeyPair, error)) (pair nkeys.KeyPair, public, seed string) {
	t.Helper()
	pair, err := make()
	if err != nil {
		t.Fatal(err)
	}
	public, err = pair.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	text, err := pair.Seed()
	if err != nil {
		t.Fatal(err)
	}
	return pair, public, string(text)
}

// A program known by its nkey works with the permissions of its user, on the inbox that
// goes by its name; a stranger's nkey is refused.
func TestAProgramKnownByItsNkeyWorks(t *testing.T) {
	_, public, seed := nkey(t, nkeys.CreateUser)
	_, _, strangers := nkey(t, nkeys.CreateUser)
	in := under(t, instead(t, natsConfig(t), "mail-consumer", "nkey: "+public))
	in.works("mail-consumer", "NATS_NKEY="+secretFile(t, "seed", seed))
	in.keptOut("mail-consumer", map[string][]string{"uthorization": {"NATS_NKEY=" + secretFile(t, "seed", strangers)}})
	in.neverSaid(seed, strangers)
}

// A program with credentials of an operator's account works with the permissions that
// its user has in the shipped configuration.
func TestAProgramWithCredentialsWorks(t *testing.T) {
	o := newOperator(t)
	seed, token := o.user("admin", jwt.Permissions{})
	config := fmt.Sprintf("operator: %s\nsystem_account: %s\nresolver: MEMORY\nresolver_preload: { %s: %s, %s: %s }\n",
		o.jwt, o.system, o.system, o.systemJWT, o.account, o.accountJWT)
	in := under(t, config, nats.UserJWTAndSeed(token, seed))
	for _, program := range users[:3] {
		seed, token := o.user(program, permissionsOf(t, program))
		creds, err := jwt.FormatUserConfig(token, []byte(seed))
		if err != nil {
			t.Fatal(err)
		}
		in.works(program, "NATS_CREDS="+secretFile(t, "creds", string(creds)))
		in.neverSaid(seed, token)
	}
	seed, token = newOperator(t).user("log-poller", permissionsOf(t, "log-poller"))
	creds, err := jwt.FormatUserConfig(token, []byte(seed))
	if err != nil {
		t.Fatal(err)
	}
	in.keptOut("log-poller", map[string][]string{"uthorization": {"NATS_CREDS=" + secretFile(t, "creds", string(creds))}})
	in.neverSaid(seed, token)
}

// neverSaid fails the test when a program told one of texts.
func (in *installation) neverSaid(texts ...string) {
	in.t.Helper()
	for _, p := range in.all() {
		for _, text := range texts {
			if line := p.line(text); line != "" {
				in.t.Errorf("%s tells its key: %s", p.name, line)
			}
		}
	}
}

// permissionsOf are those of a user in the shipped configuration, as a JWT has them.
func permissionsOf(t *testing.T, user string) (p jwt.Permissions) {
	t.Helper()
	var o server.Options
	if err := o.ProcessConfigString(natsConfig(t)); err != nil {
		t.Fatal(err)
	}
	for _, u := range o.Users {
		if u.Username == user {
			p.Pub.Allow, p.Sub.Allow = u.Permissions.Publish.Allow, u.Permissions.Subscribe.Allow
			return p
		}
	}
	t.Fatalf("the shipped configuration has no %s", user)
	return p
}

// operator signs accounts, which sign users.
type operator struct {
	t                   *testing.T
	jwt                 string
	system, systemJWT   string
	account, accountJWT string
	accountPair         nkeys.KeyPair
}

func newOperator(t *testing.T) *operator {
	t.Helper()
	o := &operator{t: t}
	pair, public, _ := nkey(t, nkeys.CreateOperator)
	signed := func(claims interface {
		Encode(nkeys.KeyPair) (string, error)
	}) string {
		text, err := claims.Encode(pair)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	o.jwt = signed(jwt.NewOperatorClaims(public))
	_, o.system, _ = nkey(t, nkeys.CreateAccount)
	o.systemJWT = signed(jwt.NewAccountClaims(o.system))
	o.accountPair, o.account, _ = nkey(t, nkeys.CreateAccount)
	errand := jwt.NewAccountClaims(o.account)
	errand.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: jwt.NoLimit, DiskStorage: jwt.NoLimit, Streams: jwt.NoLimit, Consumer: jwt.NoLimit}
	o.accountJWT = signed(errand)
	return o
}

// user makes a user of the account.
func (o *operator) user(name string, may jwt.Permissions) (seed, token string) {
	o.t.Helper()
	_, public, seed := nkey(o.t, nkeys.CreateUser)
	claims := jwt.NewUserClaims(public)
	claims.Name, claims.Permissions = name, may
	token, err := claims.Encode(o.accountPair)
	if err != nil {
		o.t.Fatal(err)
	}
	return seed, token
}
