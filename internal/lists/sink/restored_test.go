package sink_test

import (
	"errors"
	"os"
	"testing"
	"time"

	"errand/internal/history"
	"errand/internal/lists/sink"
	"errand/internal/lists/sweep"
	"errand/internal/sandbox/devkit/devtest"
	"errand/pkg/messages"
)

// requestsOf counts what Requests returns that it did not return before.
func requestsOf(t *testing.T, d *sink.Store) (n int) {
	t.Helper()
	err := d.Requests(t.Context(), time.Time{}, func(history.Entry) error {
		n++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// The disk of a server is set back, or has lost what was written last: the stream is as old as before and has our
// leadership. The next write that is stored shows it, also the one by which the leadership is taken.
func TestAStreamThatWasSetBackIsNoticed(t *testing.T) {
	t.Run("a write each", func(t *testing.T) { noticesThatItWasSetBack(t, func(*sink.Store) {}) })
	t.Run("in batches", func(t *testing.T) { noticesThatItWasSetBack(t, (*sink.Store).InBatches) })
}

func noticesThatItWasSetBack(t *testing.T, prepare func(*sink.Store)) {
	n, nc := devtest.Provisioned(t)
	d := newSink(t, nc)
	prepare(d)
	kept := func() {
		t.Helper()
		if _, err := d.Kept(t.Context()); err != nil {
			t.Fatalf("Kept: %v", err)
		}
	}
	dir, copied := n.Server.JetStreamConfig().StoreDir, t.TempDir()
	restart := func() {
		t.Helper()
		was := nc.Stats().Reconnects
		if err := n.Restart(); err != nil {
			t.Fatal(err)
		}
		for nc.Stats().Reconnects == was {
			<-time.After(10 * time.Millisecond)
		}
	}
	setBack := func() {
		t.Helper()
		n.Stop()
		err := os.RemoveAll(dir)
		if err == nil {
			err = os.CopyFS(dir, os.DirFS(copied))
		}
		if err != nil {
			t.Fatal(err)
		}
		restart()
	}
	kept()
	learn(t, d)
	store(t, d, rows(0, 3))
	if _, err := nc.Request(messages.Send.Subject(messages.Started, "r1"), []byte("{}"), time.Minute); err != nil {
		t.Fatal(err)
	}
	requests := func(want int) {
		t.Helper()
		if got := requestsOf(t, d); got != want {
			t.Errorf("%d events of requests are given, want %d", got, want)
		}
	}
	requests(1)
	requests(0)
	n.Stop()
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	restart()
	kept()
	store(t, d, rows(3, 6)) // a restart alone is not a reason to learn anything

	setBack()
	kept()
	wait := d.Publish(t.Context(), rows(6, 7))
	requests(0) // what is begun behind it needs them before that one shows that events are gone
	if _, err := wait(); !errors.Is(err, sweep.ErrReset) {
		t.Errorf("Publish where events are gone: %v, want %v", err, sweep.ErrReset)
	}
	requests(0)
	d.Reset()
	requests(1) // again, as records of their calls
	if got := learn(t, d); len(got) != 4 {
		t.Errorf("%d events are learned, want the 3 that are left and the one that was stored", len(got))
	}
	store(t, d, rows(3, 6))

	setBack()
	kept()
	if err := count(map[sweep.ID]int{}, d); !errors.Is(err, sweep.ErrReset) {
		t.Errorf("Learn where events are gone: %v, want %v", err, sweep.ErrReset)
	}
	d.Reset()
	if got := learn(t, d); len(got) != 3 {
		t.Errorf("%d events are learned, want the 3 that are left", len(got))
	}
	store(t, d, rows(3, 6))

	// Now the copy is of after the last learning: what was stored since is known by its acknowledgements alone.
	n.Stop()
	copied = t.TempDir()
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	restart()
	store(t, d, rows(6, 9))
	setBack()
	kept()
	if err := count(map[sweep.ID]int{}, d); !errors.Is(err, sweep.ErrReset) {
		t.Errorf("Learn where only acknowledged events are gone: %v, want %v", err, sweep.ErrReset)
	}

	// Others of the stream write more than was lost before we do: the last watermark shows it.
	mark := func() error { return d.Mark(t.Context(), sweep.Mark{At: time.Now()}) }
	for what, notices := range map[string]func() error{
		"Mark": mark,
		"Kept": func() error { _, err := d.Kept(t.Context()); return err },
	} {
		d.Reset()
		learn(t, d)
		if err := mark(); err != nil {
			t.Fatal(err)
		}
		n.Stop()
		copied = t.TempDir()
		if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		restart()
		store(t, d, rows(3, 9))
		if err := mark(); err != nil {
			t.Fatal(err)
		}
		setBack()
		for range 20 {
			if _, err := nc.Request("mail.log.sent.r1.1", []byte("{}"), time.Minute); err != nil {
				t.Fatal(err)
			}
		}
		store(t, d, rows(9, 10))
		if err := notices(); !errors.Is(err, sweep.ErrReset) {
			t.Errorf("%s where others wrote more than was lost: %v, want %v", what, err, sweep.ErrReset)
		}
	}
}
