package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
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
			if line := p.logLine(text); line != "" {
				in.t.Errorf("%s shows its key: %s", p.name, line)
			}
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

// authority signs certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string // its own certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	a.file, _ = a.sign("authority")
	return a
}

// sign makes a certificate for a server on this machine or a client of that name; the first is the authority's own.
func (a *authority) sign(name string) (cert, key string) {
	a.t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(a.t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if a.cert == nil {
		template.IsCA, template.KeyUsage = true, x509.KeyUsageCertSign
		a.cert, a.key = template, private
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &private.PublicKey, a.key)
	must(a.t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	must(a.t, err)
	return secretFile(a.t, "cert.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))),
		secretFile(a.t, "key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})))
}

// A program that shows a certificate is the user of that name and works with its permissions. One without a
// certificate, with a stranger's, or that does not trust the server, is not authorized and says why.
func TestAProgramKnownByItsCertificateWorks(t *testing.T) {
	ours, stranger := newAuthority(t), newAuthority(t)
	serverCert, serverKey := ours.sign("server")
	config := fmt.Sprintf("tls { cert_file: %q, key_file: %q, ca_file: %q, verify_and_map: true }\n", serverCert, serverKey, ours.file) +
		replaceUser(t, natsConfig(t), "mandate-consumer", `user: "CN=mandate-consumer"`)
	config = strings.NewReplacer("{ user: admin, password: admin }", `{ user: "CN=admin" }`, "no_auth_user: admin\n", "").Replace(config)
	adminCert, adminKey := ours.sign("admin")
	in := installWithConfig(t, config, nats.RootCAs(ours.file), nats.ClientCert(adminCert, adminKey))
	cert, key := ours.sign("mandate-consumer")
	in.wantWorks("mandate-consumer", "NATS_CA="+ours.file, "NATS_CERT="+cert, "NATS_KEY="+key)

	theirs, theirKey := stranger.sign("mandate-consumer")
	in.wantRefused("mandate-consumer", map[string][]string{
		"certificate signed by unknown authority": {"NATS_CA=" + stranger.file, "NATS_CERT=" + cert, "NATS_KEY=" + key},
		"certificate required":                    {"NATS_CA=" + ours.file},
		"unknown certificate authority":           {"NATS_CA=" + ours.file, "NATS_CERT=" + theirs, "NATS_KEY=" + theirKey},
	})
}
