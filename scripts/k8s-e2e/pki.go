//go:build linux

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// authority signs certificates that are valid for one run. Each is written as <name>.crt and <name>.key to dir.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// newAuthority makes a self-signed certificate authority.
func newAuthority(dir, name string) *authority {
	a := &authority{dir: dir}
	a.issue(name, &x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign})
	return a
}

// leaf makes a certificate for a client with a name and a group, and for a server with these hosts.
func (a *authority) leaf(name, user, group string, hosts ...string) {
	template := &x509.Certificate{Subject: pkix.Name{CommonName: user}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}}
	if group != "" {
		template.Subject.Organization = []string{group}
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	a.issue(name, template)
}

func (a *authority) issue(name string, template *x509.Certificate) {
	key := get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template.SerialNumber = get(rand.Int(rand.Reader, big.NewInt(1<<62)))
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(48*time.Hour)
	if template.IsCA {
		a.cert, a.key = template, key
	}
	der := get(x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key))
	if template.IsCA {
		a.cert = get(x509.ParseCertificate(der))
	}
	a.write(name+".key", "EC PRIVATE KEY", get(x509.MarshalECPrivateKey(key)))
	a.write(name+".crt", "CERTIFICATE", der)
}

func (a *authority) write(name, kind string, der []byte) {
	must(os.WriteFile(filepath.Join(a.dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}

// kubeconfig writes a client's configuration; user has its credentials, a line of YAML.
func (a *authority) kubeconfig(path, server, user string) {
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}))
	must(os.WriteFile(path, fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: errand, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: errand, user: {%s}}]
contexts: [{name: errand, context: {cluster: errand, user: errand}}]
current-context: errand
`, server, ca, user), 0o600))
}
