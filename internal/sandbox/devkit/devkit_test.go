package devkit

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func TestServerKeepsItsDataAndItsPortAcrossARestart(t *testing.T) {
	n, err := Start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	js := connected(t, n)
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), "s", []byte("kept")); err != nil {
		t.Fatal(err)
	}
	url := n.URL
	if err := n.Restart(); err != nil {
		t.Fatal(err)
	}
	if n.URL != url {
		t.Errorf("after the restart the server is at %s, was at %s", n.URL, url)
	}
	js = connected(t, n)
	s, err := js.Stream(t.Context(), "S")
	if err != nil {
		t.Fatal(err)
	}
	if got := s.CachedInfo().State.Msgs; got != 1 {
		t.Errorf("after the restart the stream has %d messages, want 1", got)
	}
}

// A connection that somebody opens while a server is away must not get the server's port.
func TestAServersPortIsNoneThatConnectionsGet(t *testing.T) {
	n, err := Start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if port := n.Server.Addr().(*net.TCPAddr).Port; port < 10_000 || port >= 30_000 {
		t.Errorf("the server has port %d, want one from 10000 to 29999", port)
	}
}

func TestServerOnAUsedPortSaysWhy(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	_, err = Configured(t.TempDir(), "listen: "+l.Addr().String())
	if err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Fatalf("got %v, want an error that says the address is in use", err)
	}
}

func TestServerInAFileInsteadOfADirectorySaysWhy(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(file); err == nil || !strings.Contains(err.Error(), "file") {
		t.Fatalf("got %v, want an error that names the folder", err)
	}
}

func TestTemporaryStoreIsRemovedWithTheServer(t *testing.T) {
	n, err := Start("")
	if err != nil {
		t.Fatal(err)
	}
	n.Close()
	if _, err := os.Stat(n.opts.StoreDir); !os.IsNotExist(err) {
		t.Errorf("the store %s is still there: %v", n.opts.StoreDir, err)
	}
}

func TestInProcessServerOpensNoPort(t *testing.T) {
	n, err := InProcess(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if n.URL != "" || n.Server.Addr() != nil {
		t.Errorf("the server listens at %q %v, want nowhere", n.URL, n.Server.Addr())
	}
	nc, err := n.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	back := make(chan struct{})
	nc.SetReconnectHandler(func(*nats.Conn) { close(back) })
	if err := n.Restart(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-back:
	case <-time.After(time.Minute):
		t.Fatal("the connection did not reconnect to the restarted server")
	}
}

func connected(t *testing.T, n *NATS) jetstream.JetStream {
	t.Helper()
	nc, err := n.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}
