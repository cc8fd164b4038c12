package bus_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"errand/internal/bus"
	"errand/internal/sandbox/devkit"
	"errand/internal/sandbox/devkit/devtest"
	"errand/pkg/messages"
)

func callbackOf(n int) *messages.CallbackBody {
	digest := sha256.Sum256([]byte{byte(n), byte(n >> 8)})
	return &messages.CallbackBody{Method: "POST", Digest: fmt.Sprintf("%x", digest), Checksum: messages.ChecksumAbsent}
}

// callbacks counts those that a stream has of a request.
func callbacks(t *testing.T, nc *nats.Conn, request string) uint64 {
	t.Helper()
	n, _, err := bus.Count(t.Context(), nc, bus.MandateCallbacks, messages.Callback.Filter(request), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// The sender tries again when an answer was lost, and several receivers run.
func TestARepeatedCallbackIsOneEvent(t *testing.T) {
	devtest.InBubble(t, func(t *testing.T, _ *devkit.NATS, nc *nats.Conn) {
		var receivers sync.WaitGroup
		for range 4 {
			log := newLog(t, nc)
			receivers.Go(func() {
				for _, n := range []int{1, 2, 1, 3, 2, 1} {
					if err := log.Callback(t.Context(), "r1", callbackOf(n)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		receivers.Wait()
		if n := callbacks(t, nc, "r1"); n != 3 {
			t.Errorf("%d events of three callbacks", n)
		}
		if err := newLog(t, nc).Callback(t.Context(), "r2", callbackOf(1)); err != nil || callbacks(t, nc, "r2") != 1 {
			t.Errorf("the same of another request: %v, %d events", err, callbacks(t, nc, "r2"))
		}
	})
}

// What is stored of a request is read by its last callback alone, however large they are. Large ones are fewer.
func TestLargeCallbacksAreKnownAgain(t *testing.T) {
	devtest.InBubble(t, func(t *testing.T, _ *devkit.NATS, nc *nats.Conn) {
		log := newLog(t, nc)
		store := func(n int) error {
			body := callbackOf(n)
			body.Body, body.Encoding = strings.Repeat("b", 88<<10), messages.CallbackBase64
			return log.Callback(t.Context(), "r1", body)
		}
		for n := range 5 {
			if err := store(n); err != nil {
				t.Fatalf("callback %d: %v", n, err)
			}
		}
		if err := store(5); !errors.Is(err, bus.ErrManyCallbacks) {
			t.Errorf("half a megabyte and more: %v", err)
		}
		for _, n := range []int{0, 2, 4} {
			if err := store(n); err != nil {
				t.Errorf("callback %d, again: %v", n, err)
			}
		}
		if n := callbacks(t, nc, "r1"); n != 5 {
			t.Errorf("%d events of 5 callbacks", n)
		}
	})
}

func TestWhoHasTheAddressCannotFillTheStream(t *testing.T) {
	devtest.InBubble(t, func(t *testing.T, _ *devkit.NATS, nc *nats.Conn) {
		log := newLog(t, nc)
		var err error
		stored := 0
		for n := range 1000 {
			if err = log.Callback(t.Context(), "r1", callbackOf(n)); err != nil {
				break
			}
			stored++
		}
		if !errors.Is(err, bus.ErrManyCallbacks) || stored != int(callbacks(t, nc, "r1")) || stored > 100 {
			t.Errorf("%d stored, then %v; want ErrManyCallbacks", stored, err)
		}
		if err := log.Callback(t.Context(), "r1", callbackOf(0)); err != nil {
			t.Errorf("one that is stored, again: %v", err)
		}
	})
}
