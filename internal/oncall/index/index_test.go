package index

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"errand/internal/bus"
	"errand/internal/sandbox/devkit/devtest"
	"errand/internal/wire/mailkey"
)

// installation is a server with the streams, and what a test stores in them.
type installation struct {
	t      *testing.T
	nc     *nats.Conn
	js     jetstream.JetStream
	secret *mailkey.Secret
}

func provisioned(t *testing.T) installation {
	t.Helper()
	_, nc := devtest.Provisioned(t)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return installation{t, nc, js, mailkey.NewSecret("a secret that is long and random")}
}

// open opens an index that is closed when the test ends.
func (in installation) open(dir string) *Index {
	in.t.Helper()
	x, err := Open(Options{Dir: dir, Log: zerolog.Nop()})
	if err != nil {
		in.t.Fatal(err)
	}
	in.t.Cleanup(func() { _ = x.Close() })
	return x
}

// find asks an index.
func (in installation) find(x *Index, word string) (bus.Known, error) {
	return x.Find(in.t.Context(), (&bus.Secrets{Conn: in.nc, Given: []*mailkey.Secret{in.secret}}).Sought(in.t.Context(), word))
}

// follow has an index follow the streams until it is stopped, or the test ends.
func (in installation) follow(x *Index) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { x.Follow(ctx, in.nc, in.js) })
	stop = func() { cancel(); wg.Wait() }
	in.t.Cleanup(stop)
	return stop
}

// current waits until an index has everything that was stored before.
func (in installation) current(x *Index) {
	in.t.Helper()
	asked := time.Now()
	in.until(func() bool { return x.Lag().Current.After(asked) })
}

// until waits for what must come true.
func (in installation) until(is func() bool) {
	in.t.Helper()
	limit := time.After(5 * time.Minute)
	for tick := time.Tick(5 * time.Millisecond); !is(); {
		select {
		case <-tick:
		case <-limit:
			in.t.Fatal("it never came true")
		}
	}
}

// store stores a message, and waits until it is.
func (in installation) store(subject string, body any, header ...string) {
	in.t.Helper()
	if _, err := in.js.PublishMsg(in.t.Context(), devtest.Message(in.t, subject, body, header...)); err != nil {
		in.t.Fatal(err)
	}
}
