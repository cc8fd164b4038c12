// Package devtest runs a nats-server for a test: provisioned like a real one and stopped when the test ends.
package devtest

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/nats-io/nats-server/v2/server/ats"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/sandbox/devkit"
)

// Main is the TestMain of packages that use InBubble: the server's clock goroutine must start outside of any bubble.
//
//	func TestMain(m *testing.M) { devtest.Main(m) }
func Main(m *testing.M) {
	ats.Register()
	m.Run()
}

// Full skips the test in -short, which has no processes, no clusters and no long stretches of virtual time.
func Full(t testing.TB) {
	t.Helper()
	if testing.Short() { //nolint:forbidigo // a skip needs no note
		t.Skip("skipped in -short") //nolint:forbidigo // who asks for -short knows
	}
}

// Server starts a server on a loopback port. It is stopped when the test ends.
func Server(t testing.TB) *devkit.NATS {
	t.Helper()
	return closing(t, devkit.Start)
}

// Configured is a Server with a configuration in the server's language.
func Configured(t testing.TB, config string) *devkit.NATS {
	t.Helper()
	return closing(t, func(dir string) (*devkit.NATS, error) { return devkit.Configured(dir, config) })
}

// Accounts is the shipped configuration of deploy/nats with all its users, read from the module's root.
func Accounts(t testing.TB, root string, password func(user string) string) string {
	t.Helper()
	var files [2]string
	for i, name := range []string{"errand.conf", "emergency/emergency.conf"} {
		text, err := os.ReadFile(filepath.Join(root, "deploy/nats", name))
		if err != nil {
			t.Fatal(err)
		}
		files[i] = string(text)
	}
	config := strings.Replace(files[0], "include emergency.conf", files[1], 1)
	return variable.ReplaceAllStringFunc(config, func(name string) string {
		name = strings.TrimSuffix(name[1:], "_PASSWORD")
		return strconv.Quote(password(strings.ReplaceAll(strings.ToLower(name), "_", "-")))
	})
}

// variable matches where the shipped configuration has a user's password.
var variable = regexp.MustCompile(`\$[A-Z_]+_PASSWORD`)

// Provisioned is a Server with every stream and consumer, and a connection to it.
func Provisioned(t testing.TB) (*devkit.NATS, *nats.Conn) {
	t.Helper()
	n := Server(t)
	return n, provision(t, n)
}

// InBubble runs f in virtual time against a provisioned server without a port.
// The package needs Main.
func InBubble(t *testing.T, f func(t *testing.T, n *devkit.NATS, nc *nats.Conn)) {
	t.Helper()
	// nats.go keeps timers in a sync.Pool, and using a timer of this bubble outside of
	// it would panic: two garbage collections empty the pool.
	defer func() { runtime.GC(); runtime.GC() }()
	synctest.Test(t, func(t *testing.T) {
		n := closing(t, devkit.InProcess)
		f(t, n, provision(t, n))
	})
}

func closing(t testing.TB, start func(dir string) (*devkit.NATS, error)) *devkit.NATS {
	t.Helper()
	n, err := start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	return n
}

// provision connects to n and applies the topology. The connection is closed when the test ends.
func provision(t testing.TB, n *devkit.NATS) *nats.Conn {
	t.Helper()
	nc, err := n.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if err := Provision(t.Context(), nc); err != nil {
		t.Fatal(err)
	}
	return nc
}

// Provision creates all streams and consumers, as `errand provision` does.
func Provision(ctx context.Context, nc *nats.Conn, lanes ...string) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	limits := Limits(nc)
	limits.Lanes = lanes
	plan, err := bus.Plan(ctx, js, limits)
	if err != nil {
		return err
	}
	return bus.Apply(ctx, plan, false, func(bus.Change) {})
}

// Limits are what `errand provision` chooses by default.
func Limits(nc *nats.Conn) bus.Limits {
	l := bus.Defaults
	l.MaxPayload = nc.MaxPayload()
	return l
}

// Message is one to publish; its body may be text or anything that becomes JSON.
func Message(t testing.TB, subject string, body any, header ...string) *nats.Msg {
	t.Helper()
	m := &nats.Msg{Subject: subject, Header: nats.Header{}}
	for pair := range slices.Chunk(header, 2) {
		m.Header.Set(pair[0], pair[1])
	}
	if text, ok := body.(string); ok {
		m.Data = []byte(text)
		return m
	}
	var err error
	if m.Data, err = json.Marshal(body); err != nil {
		t.Fatal(err)
	}
	return m
}
