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

	"github.com/nats-io/nats.go"
)

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

// sign makes a certificate for a server on this machine or a client of that name; the
// first is the authority's own.
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

// A program that shows a certificate is the user of that name and works with its
// permissions. One without a certificate, with a stranger's, or that does not trust the
// server, is not authorized and says why.
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
