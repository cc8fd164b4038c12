package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"errand/internal/sandbox/devkit"
	"errand/internal/sandbox/devkit/devtest"
)

// nkey makes an nkey.
func nkey(t *testing.T, make func() (nkeys.KeyPair, error)) (pair nkeys.KeyPair, public, seed string) {
	t.Helper()
	pair, err := make()
	must(t, err)
	public, err = pair.PublicKey()
	must(t, err)
	text, err := pair.Seed()
	must(t, err)
	return pair, public, string(text)
}

// A program known by its nkey works with the permissions of its user, on the inbox that
// goes by its name; a stranger's nkey is refused.
func TestAProgramKnownByItsNkeyWorks(t *testing.T) {
	_, public, seed := nkey(t, nkeys.CreateUser)
	_, _, strangers := nkey(t, nkeys.CreateUser)
	in := installWithConfig(t, replaceUser(t, natsConfig(t), "mail-consumer", "nkey: "+public))
	in.wantWorks("mail-consumer", "NATS_NKEY="+secretFile(t, "seed", seed))
	in.wantRefused("mail-consumer", map[string][]string{"uthorization": {"NATS_NKEY=" + secretFile(t, "seed", strangers)}})
	in.wantNotLogged(seed, strangers)
}

// A program with credentials of an operator's account works with the permissions that
// its user has in the shipped configuration.
func TestAProgramWithCredentialsWorks(t *testing.T) {
	o := newOperator(t)
	seed, token := o.user("admin", jwt.Permissions{})
	config := fmt.Sprintf("operator: %s\nsystem_account: %s\nresolver: MEMORY\nresolver_preload: { %s: %s, %s: %s }\n",
		o.jwt, o.system, o.system, o.systemJWT, o.account, o.accountJWT)
	in := installWithConfig(t, config, nats.UserJWTAndSeed(token, seed))
	for _, program := range users[:3] {
		seed, token := o.user(program, permissionsOf(t, program))
		creds, err := jwt.FormatUserConfig(token, []byte(seed))
		must(t, err)
		in.wantWorks(program, "NATS_CREDS="+secretFile(t, "creds", string(creds)))
		in.wantNotLogged(seed, token)
	}
	seed, token = newOperator(t).user("log-poller", permissionsOf(t, "log-poller"))
	creds, err := jwt.FormatUserConfig(token, []byte(seed))
	must(t, err)
	in.wantRefused("log-poller", map[string][]string{"uthorization": {"NATS_CREDS=" + secretFile(t, "creds", string(creds))}})
	in.wantNotLogged(seed, token)
}

// wantNotLogged fails the test when a program logged one of texts.
func (in *installation) wantNotLogged(texts ...string) {
	in.t.Helper()
	for _, p := range in.processes() {
		for _, text := range texts {
			line := p.logLine(text)
			errorIf(in.t, line != "", "%s shows its key: %s", p.name, line)
		}
	}
}

// permissionsOf are a user's permissions in the shipped configuration, as a JWT has them.
func permissionsOf(t *testing.T, user string) (p jwt.Permissions) {
	t.Helper()
	var o server.Options
	must(t, o.ProcessConfigString(natsConfig(t)))
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
		must(t, err)
		return text
	}
	o.jwt = signed(jwt.NewOperatorClaims(public))
	_, o.system, _ = nkey(t, nkeys.CreateAccount)
	o.systemJWT = signed(jwt.NewAccountClaims(o.system))
	o.accountPair, o.account, _ = nkey(t, nkeys.CreateAccount)
	errand := jwt.NewAccountClaims(o.account)
	errand.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: jwt.NoLimit, DiskStorage: jwt.NoLimit, Streams: jwt.NoLimit,
		Consumer: jwt.NoLimit}
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
	must(o.t, err)
	return seed, token
}

// A program that shows a certificate is the user of that name and works with its permissions, also where the address is
// not the one in the server's certificate. One without a certificate, with a stranger's, or that does not trust the server,
// is not authorized and says why.
func TestAProgramKnownByItsCertificateWorks(t *testing.T) {
	ours, stranger := newSigner(), newSigner()
	trusted := ours.file(t)
	serverCert, serverKey := ours.files(t, "server")
	config := fmt.Sprintf("tls { cert_file: %q, key_file: %q, ca_file: %q, verify_and_map: true }\n", serverCert, serverKey, trusted) +
		replaceUser(t, natsConfig(t), "mandate-consumer", `user: "CN=mandate-consumer"`)
	config = strings.NewReplacer(fmt.Sprintf("{ user: admin, password: %q }", password("admin")), `{ user: "CN=admin" }`,
		"no_auth_user: admin\n", "").Replace(config)
	adminCert, adminKey := ours.files(t, "admin")
	in := installWithConfig(t, config, nats.RootCAs(trusted), nats.ClientCert(adminCert, adminKey))
	cert, key := ours.files(t, "mandate-consumer")
	in.wantWorks("mandate-consumer", "NATS_CA="+trusted, "NATS_CERT="+cert, "NATS_KEY="+key)

	forwarded := "NATS_URL=" + strings.Replace(in.nats.URL, "127.0.0.1", "localhost", 1) // as behind a port-forward
	p := in.start("mandate-consumer", forwarded, "NATS_TLS_NAME=server", "NATS_CA="+trusted, "NATS_CERT="+cert, "NATS_KEY="+key)
	in.untilReady(p)
	p.stop(time.Minute)

	theirs, theirKey := stranger.files(t, "mandate-consumer")
	in.wantRefused("mandate-consumer", map[string][]string{
		"certificate signed by unknown authority": {"NATS_CA=" + stranger.file(t), "NATS_CERT=" + cert, "NATS_KEY=" + key},
		"certificate is valid for":                {forwarded, "NATS_CA=" + trusted, "NATS_CERT=" + cert, "NATS_KEY=" + key},
		"certificate required":                    {"NATS_CA=" + trusted},
		"unknown certificate authority":           {"NATS_CA=" + trusted, "NATS_CERT=" + theirs, "NATS_KEY=" + theirKey},
	})
}

// Programs that reach NATS through a leaf node, whose JetStream is another domain, work on the streams of the hub's.
func TestProgramsWorkThroughALeafNode(t *testing.T) {
	devtest.Full(t)
	dir := releaseBuild.programs(t)
	parallel(t)
	ports, err := devkit.Addresses(1)
	must(t, err)
	hub := devtest.Configured(t, fmt.Sprintf("server_name: hub\njetstream { domain: hub }\nleafnodes { listen: %q }", ports[0]))
	leaf := devtest.Configured(t, fmt.Sprintf("server_name: leaf\njetstream { domain: leaf }\n"+
		`leafnodes { remotes: [ { url: "nats-leaf://%s" } ] }`, ports[0]))
	in := newInstallation(t, dir, leaf.URL, "NATS_JS_DOMAIN=hub")
	nc := connect(t, hub.URL)
	in.js, err = jetstream.New(nc)
	must(t, err)
	in.nats, in.producer = hub, in.js
	in.provision(nc, 1)
	t.Cleanup(in.close)
	for _, program := range []string{"mandate-consumer", "mail-consumer", "log-poller"} {
		in.wantWorks(program)
	}
}
