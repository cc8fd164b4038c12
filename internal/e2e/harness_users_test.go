package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/sandbox/devkit"
	"errand/internal/sandbox/devkit/devtest"
)

// users are the users of the shipped configuration; a program's user has its name.
var users = bus.Users

// password is a user's; keptItsSecrets looks for it in all that is said.
func password(user string) string { return user + "-password-" + secretMark }

// variable is where the shipped configuration has a user's password from.
func variable(user string) string {
	return strings.ToUpper(strings.ReplaceAll(user, "-", "_")) + "_PASSWORD"
}

// natsConfig is the configuration that is shipped, with passwords; a connection without a user is the admin's.
func natsConfig(t *testing.T) string {
	t.Helper()
	return devtest.Accounts(t, "../..", password) + "\nno_auth_user: admin\n"
}

// securedServer is a server under natsConfig for this test alone.
func securedServer(t *testing.T) *devkit.NATS {
	t.Helper()
	return devtest.Configured(t, natsConfig(t))
}

// connectAs returns a connection of one of users, set up as the programs are.
func connectAs(t *testing.T, url, user string, options ...nats.Option) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	nc := connect(t, url, append(slices.Clip(options), nats.Name("test "+user), nats.UserInfo(user, password(user)),
		nats.CustomInboxPrefix("_INBOX_"+user))...)
	js, err := jetstream.New(nc)
	must(t, err)
	return nc, js
}

// wasRefused finds what a program, a client or a nats-server says of a permission that is missing.
var wasRefused = regexp.MustCompile(`(?i).*(permissions|publish|subscription) violation.*`)

// wantNoViolations fails the test when the process tried what it has no permission for.
func (p *process) wantNoViolations() {
	p.t.Helper()
	for _, line := range wasRefused.FindAllString(p.output.String(), 3) {
		p.t.Errorf("%s logs a permission that is missing: %s", p.name, line)
	}
}

// wantNoLeaksInEvents fails the test when an event or a dead letter holds a secret
// of the programs. Who the payers and recipients are is in them by design.
func (in *installation) wantNoLeaksInEvents() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute) // the test's own is over; a backlog of events takes its time
	defer cancel()
	for _, stream := range []string{bus.MandateEvents, bus.MandateCallbacks, bus.MailEvents, bus.MailDeliveries, bus.DeadLetters} {
		if !in.nats.Server.Running() {
			return // the test took it away, as it may have a stream
		}
		c, err := in.js.OrderedConsumer(ctx, stream, jetstream.OrderedConsumerConfig{})
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		if err != nil {
			in.t.Errorf("read %s: %v", stream, err)
			continue
		}
		all, err := c.Messages()
		for left := c.CachedInfo().NumPending; left > 0 && err == nil; left-- {
			var m jetstream.Msg
			if m, err = all.Next(jetstream.NextContext(ctx)); err == nil {
				said := fmt.Sprintf("%s %v %s", m.Subject(), m.Headers(), m.Data())
				errorIf(in.t, strings.Contains(said, secretMark), "an event shows a secret: %s", said)
			}
		}
		if err != nil {
			in.t.Errorf("read %s: %v", stream, err)
			continue
		}
		all.Stop()
	}
}

// replaceUser replaces how a user of the shipped configuration proves who it is.
func replaceUser(t *testing.T, config, user, proof string) string {
	t.Helper()
	old := fmt.Sprintf("user: %s\n        password: %q", user, password(user))
	fatalIf(t, !strings.Contains(config, old), "the shipped configuration has no %q", old)
	return strings.Replace(config, old, proof, 1)
}

// installWithConfig is an installation on a server with that configuration, where all but the
// programs is done by the admin, who connects with options.
func installWithConfig(t *testing.T, config string, admin ...nats.Option) *installation {
	t.Helper()
	dir := releaseBuild.programs(t)
	parallel(t)
	n := devtest.Configured(t, config)
	in := newInstallation(t, dir, n.URL, "NATS_USER=", "NATS_PASSWORD=")
	nc := connect(t, n.URL, admin...)
	js, err := jetstream.New(nc)
	must(t, err)
	in.nats, in.js, in.producer = n, js, js
	in.provision(nc, 1)
	t.Cleanup(in.close)
	return in
}

// wantWorks starts a program and wants an event of it.
func (in *installation) wantWorks(program string, env ...string) {
	in.t.Helper()
	p := in.start(program, env...)
	asks := map[string]string{"mandate-consumer": "mandate.transactions.requested", "mail-consumer": "mail.account.requested"}
	publishes := map[string]string{"mandate-consumer": "mandate.transactions.listed.*", "mail-consumer": "mail.account.reported.*",
		"log-poller": "mail.log.watermark"}
	if subject := asks[program]; subject != "" {
		in.publish(subject, map[string]any{})
	} else {
		in.send("logged")
	}
	in.until(program+" to work", time.Minute, func() bool { return in.count(publishes[program]) > 0 })
	in.untilReady(p) // a sweep stores its watermark before it ends
	p.stop(time.Minute)
}

// wantRefused starts a program with each of the environments and waits until each says why
// it is not authorized, in one line.
func (in *installation) wantRefused(program string, envs map[string][]string) {
	in.t.Helper()
	started := map[string]*process{}
	for why, env := range envs {
		started[why] = in.start(program, env...)
	}
	for why, p := range started {
		in.until(fmt.Sprintf("%s to say %q", program, why), time.Minute, func() bool {
			return p.logged(`"level":"warn"`, "no server answers yet", why)
		})
		status, body := p.get("/readyz")
		errorIf(in.t, status != http.StatusServiceUnavailable || !strings.Contains(body, "not connected to NATS"), "/readyz: %d %s", status, body)
		p.stop(time.Minute) // asked to end before NATS accepted it
	}
}

func secretFile(t *testing.T, name, text string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), name)
	must(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// send sends a message past the programs: the sending log has it nevertheless.
func (in *installation) send(id string) {
	in.t.Helper()
	letter := message(id, 2, "from", "shop@example.test")
	letter["as_html"] = 0
	in.direct("/api/v0/messages", letter)
}

// everyProgram are the three that run for ever.
var everyProgram = []string{"mandate-consumer", "mail-consumer", "log-poller"}

// publishRequests publishes n requests for each consumer of requests.
func (in *installation) publishRequests(n int) {
	for i := range n {
		in.publish("mandate.enroll.requested", enrollment(fmt.Sprint("r", i), "on_unknown", "report"))
		in.publish("mail.send.requested", message(fmt.Sprint("m", i), 3))
	}
}

// signer signs certificates.
type signer struct {
	key *ecdsa.PrivateKey
	own *x509.Certificate
}

func newSigner() *signer {
	a := &signer{}
	a.key, _ = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign, NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(48 * time.Hour)}
	der, _ := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	a.own, _ = x509.ParseCertificate(der)
	return a
}

func (a *signer) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.own)
	return pool
}

// sign makes a certificate for a host on this machine, or for a client of that name.
func (a *signer) sign(host string, until time.Time) tls.Certificate {
	template := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, a.own, &a.key.PublicKey, a.key)
	if err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.key}
}

// file holds the signer's own certificate.
func (a *signer) file(t *testing.T) string {
	t.Helper()
	return secretFile(t, "ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.own.Raw})))
}

// files hold a certificate and its key.
func (a *signer) files(t *testing.T, name string) (cert, key string) {
	t.Helper()
	c := a.sign(name, time.Now().Add(24*time.Hour))
	secret, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	must(t, err)
	return secretFile(t, "cert.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]}))),
		secretFile(t, "key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})))
}
