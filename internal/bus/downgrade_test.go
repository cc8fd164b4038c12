package bus

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"
)

// infoPlain is what a server says that has no TLS, or one whose words were changed on their way.
const (
	infoPlain = `INFO {"server_id":"M","version":"2.14.0","headers":true,"max_payload":1048576}` + "\r\n"
	infoTLS   = `INFO {"server_id":"S","version":"2.14.0","headers":true,"tls_required":true,"max_payload":1048576}` + "\r\n"
)

// Who sits between and takes the announcement of TLS out of what the server says gets no
// password, no token, no plain word at all, where the address or a certificate asks for TLS.
func TestNobodyTalksAConnectionOutOfTLS(t *testing.T) {
	t.Parallel()
	cert, key := selfSigned(t)
	secret := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(secret, []byte("hush"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]Connection{
		"by the address":              {URL: "tls://", User: "me", Password: "hush"},
		"with a token in the address": {URL: "tls://hush@"},
		"by the authority":            {URL: "nats://", User: "me", Password: "hush", CA: cert},
		"with a password in a file":   {URL: "nats://", User: "me", PasswordFile: secret, CA: cert},
		"by a certificate":            {URL: "nats://", User: "me", Password: "hush", Cert: cert, Key: key},
		"where plain is allowed":      {URL: "tls://", User: "me", Password: "hush", AllowPlain: true},
		"by one of several addresses": {URL: "tls://127.0.0.1:1,nats://", User: "me", Password: "hush"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			listener := listen(t)
			c.URL += listener.Addr().String()
			nc := connectTo(t, c)
			if got := sentTo(t, listener, infoPlain); got != "" {
				t.Errorf("it is sent %q", got)
			}
			if nc.IsConnected() {
				t.Error("it is connected")
			}
		})
	}
}

// The same holds when a connection comes back.
func TestAConnectionThatComesBackInsistsOnTLS(t *testing.T) {
	t.Parallel()
	cert, key := selfSigned(t)
	listener := listen(t)
	up := make(chan struct{})
	go func() {
		defer close(up)
		conn, within := acceptTLS(t, listener, cert, key)
		lines := bufio.NewScanner(within)
		for lines.Scan() && !strings.HasPrefix(lines.Text(), "PING") {
		}
		_, _ = io.WriteString(within, "PONG\r\n")
		_ = conn.Close() // the connection is up, and then lost
	}()
	connectTo(t, Connection{URL: "nats://" + listener.Addr().String(), User: "me", Password: "hush", CA: cert})
	<-up
	if got := sentTo(t, listener, infoPlain); got != "" {
		t.Errorf("it is sent %q", got)
	}
}

// Who sits between and offers TLS of their own gets a handshake and nothing in it.
func TestAStrangersCertificateGetsNoPassword(t *testing.T) {
	t.Parallel()
	ours, _ := selfSigned(t)
	theirs, key := selfSigned(t)
	listener := listen(t)
	said := make(chan string, 1)
	go func() {
		_, within := acceptTLS(t, listener, theirs, key)
		line, _ := bufio.NewReader(within).ReadString('\n') // the error is what is hoped for
		said <- line
	}()
	connectTo(t, Connection{URL: "nats://" + listener.Addr().String(), User: "me", Password: "hush", CA: ours})
	if line := <-said; line != "" {
		t.Errorf("it is told %q", line)
	}
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

// acceptTLS takes a client in as a server with a certificate does.
func acceptTLS(t *testing.T, listener net.Listener, cert, key string) (net.Conn, *tls.Conn) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Error(err)
	}
	conn, err := listener.Accept()
	if err != nil {
		t.Error(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_, _ = io.WriteString(conn, infoTLS)
	return conn, tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{pair}})
}

// sentTo is what a client sends to somebody who says only this, before it hangs up or tries
// again. One that is taken in sends at once, and then waits for an answer.
func sentTo(t *testing.T, listener net.Listener, says string) string {
	t.Helper()
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_, _ = io.WriteString(conn, says)
	sent, again := make(chan string, 1), make(chan struct{})
	go func() {
		got := make([]byte, 1<<10)
		n, _ := conn.Read(got) // what is closed was sent nothing
		sent <- string(got[:n])
	}()
	go func() {
		defer close(again)
		if next, err := listener.Accept(); err == nil {
			_ = next.Close()
		}
	}()
	select {
	case got := <-sent:
		return got
	case <-again:
		return ""
	}
}

// connectTo opens a connection that ends with the test.
func connectTo(t *testing.T, c Connection) *nats.Conn {
	t.Helper()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	nc, err := Connect(c, "test", zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// selfSigned makes a certificate for this machine.
func selfSigned(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, BasicConstraintsValid: true, IsCA: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}
