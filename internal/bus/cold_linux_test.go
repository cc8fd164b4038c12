package bus_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/sandbox/devkit"
	"errand/internal/sandbox/devkit/devtest"
	"errand/pkg/messages"
)

// With more enrollments, on a disk (1.3 KB each), and with writes beside the questions that must not wait:
//
//	TMPDIR=/var/tmp go test ./internal/bus -run TestNoQuestionReadsAllThatIsKept -v -timeout 1h -cold.enrollments 10000000 -cold.wait 50ms
var (
	coldEnrollments = flag.Int("cold.enrollments", 250_000, "enrollments that are kept, of two events each; a multiple of 10000")
	coldWait        = flag.Duration("cold.wait", 0, "how long a write may wait for a question; 0 does not count it")
)

// A question about many events must not read them all: the server would do it under the lock that writes wait for. It has
// forgotten what is in a block after two minutes without a question, after a start and after a change of leader. What it reads
// is counted, not timed: to read one of its blocks of 8 MB takes it 10 to 20 ms. Each question is asked cold, and warm again.
func TestNoQuestionReadsAllThatIsKept(t *testing.T) {
	devtest.Full(t)
	n, nc := devtest.Provisioned(t)
	kept := *coldEnrollments
	k := keep(t, nc, kept)
	var besides, without time.Duration // the slowest writes
	some, uncertain := messages.Enroll.Filter(fmt.Sprint("r", kept*2/5)), messages.Enroll.Subject(messages.Uncertain, "*")
	for _, c := range []struct {
		what   string
		blocks uint64 // at most
		ask    func(ctx context.Context) (found int, err error)
		want   int
	}{
		{"the next uncertain enrollment", 4, func(ctx context.Context) (int, error) {
			p, err := (&bus.Rare{Store: k.log, Operation: messages.Enroll, State: messages.Uncertain}).Next(ctx, 0, time.Unix(0, 0))
			return int(p.Sequence), err
		}, int(k.uncertain[0])},
		{"the next uncertain enrollment behind the last", 4, func(ctx context.Context) (int, error) {
			p, err := (&bus.Rare{Store: k.log, Operation: messages.Enroll, State: messages.Uncertain}).Next(ctx, k.uncertain[1]+1, time.Time{})
			return len(p.Subject), err
		}, 0},
		{"the first enrollment that succeeded", 2, func(ctx context.Context) (int, error) {
			p, err := k.log.Open(ctx, messages.Enroll, messages.Succeeded, 0, time.Unix(0, 0))
			return int(p.Sequence), err
		}, 1001},
		{"the next enrollment that succeeded", 2, func(ctx context.Context) (int, error) {
			p, err := k.log.Open(ctx, messages.Enroll, messages.Succeeded, uint64(kept), time.Time{})
			return min(int(p.Sequence), kept), err
		}, kept},
		{"the last event of a request", 2, func(ctx context.Context) (int, error) {
			e, err := k.log.Last(ctx, messages.Enroll, some)
			return int(min(e.Sequence, 1)), err
		}, 1},
		{"the first event of a request", 2, func(ctx context.Context) (int, error) {
			e, err := k.log.Next(ctx, messages.Enroll, some, 1)
			return int(min(e.Sequence, 1)), err
		}, 1},
		{"all events of a request", 4, func(ctx context.Context) (found int, err error) {
			return found, bus.EachOf(ctx, nc, bus.MandateEvents, some,
				func(bus.Message) bool { found++; return true })
		}, 2},
		{"the newest uncertain enrollments", 12, func(ctx context.Context) (found int, err error) {
			return found, bus.Newest(ctx, nc, bus.MandateEvents, []bus.Wanted{{Filter: uncertain}}, time.Time{}, 50,
				func(int, bus.Message) bool { found++; return true })
		}, 2},
		{"a page in the middle", 4, func(ctx context.Context) (int, error) {
			page, err := (&bus.Scan{Stream: bus.MandateEvents, Filter: ">", From: uint64(kept), Page: 1000}).Next(ctx, nc)
			return len(page), err
		}, 1000},
	} {
		if err := n.Restart(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		for _, _, err := bus.Last(ctx, nc, bus.MandateEvents, ">"); err != nil && ctx.Err() == nil; {
			_, _, err = bus.Last(ctx, nc, bus.MandateEvents, ">")
		}
		runtime.GC() // the server before was in this process
		for _, how := range []string{"cold", "warm"} {
			var found int
			var read uint64
			var took time.Duration
			var err error
			beside := writesBeside(t, n, func() {
				before, began := bytesRead(t), time.Now()
				found, err = c.ask(ctx)
				took, read = time.Since(began), (bytesRead(t)-before)>>20
			})
			alone := writesBeside(t, n, func() { <-time.After(max(took, time.Second)) })
			t.Logf("%s, %s: %d MB read, %v; the slowest write beside it took %v, and %v without", c.what, how, read, took, beside, alone)
			besides, without = max(besides, beside), max(without, alone)
			if err != nil || found != c.want {
				t.Errorf("%s: got %d, %v; want %d", c.what, found, err, c.want)
			}
			if read > c.blocks*8 {
				t.Errorf("%s: the server read %d MB of %d, in %v; want %d blocks of 8 MB at most", c.what, read, k.megabytes, took, c.blocks)
			}
		}
		cancel()
	}
	if t.Logf("the slowest write beside questions took %v, and %v without", besides, without); besides > max(*coldWait, without) {
		t.Errorf("a write waited %v for a question", besides)
	}
}

// writesBeside returns how long the slowest write took that began while f ran, 0 if they are not counted.
func writesBeside(t *testing.T, n *devkit.NATS, f func()) (slowest time.Duration) {
	t.Helper()
	if *coldWait == 0 {
		f()
		return 0
	}
	nc, err := n.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	write := func() time.Duration {
		began := time.Now()
		if _, err := js.Publish(t.Context(), messages.Enroll.Subject(messages.Started, "beside"), nil); err != nil {
			t.Error(err)
		}
		return time.Since(began)
	}
	write()
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			default:
				slowest = max(slowest, write())
			}
		}
	}()
	f()
	close(done)
	<-ended
	return slowest
}

type stocked struct {
	log       bus.EventStore
	uncertain [2]uint64 // sequences
	megabytes uint64
}

// keep stores two events of each of so many requests, about as large as real ones.
func keep(t *testing.T, nc *nats.Conn, requests int) (k stocked) {
	t.Helper()
	k.log = newLog(t, nc)
	js, s := streamOf(t, nc, bus.MandateEvents)
	config := s.CachedInfo().Config
	config.Duplicates = 100 * time.Millisecond // after a start the server reads what may be a duplicate
	if _, err := js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	fast, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(4))
	if err != nil {
		t.Fatal(err)
	}
	body, began := bytes.Repeat([]byte("x"), 500), time.Now()
	patient := jetstream.WithStallWait(time.Minute)
	store := func(state messages.State, r int) {
		subject := messages.Enroll.Subject(state, fmt.Sprint("r", r))
		if r%500 > 0 {
			err = nc.Publish(subject, body)
		} else { // waited for: what the server is too far behind with, it drops
			_, err = fast.PublishAsync(subject, body, patient)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for r := 0; r < requests; r += 1000 {
		for i := range 1000 {
			store(messages.Started, r+i)
		}
		for i := range 1000 {
			state := messages.Succeeded
			if r+i == 5500 || r+i == requests/2+500 {
				state = messages.Uncertain
			}
			store(state, r+i)
		}
	}
	<-fast.PublishAsyncComplete()
	for i, r := range []int{5500, requests/2 + 500} {
		m, _, err := bus.Last(t.Context(), nc, bus.MandateEvents, messages.Enroll.Subject(messages.Uncertain, fmt.Sprint("r", r)))
		if err != nil {
			t.Fatal(err)
		}
		k.uncertain[i] = m.Sequence
	}
	info, err := s.Info(t.Context())
	if err != nil || info.State.Msgs != uint64(2*requests) {
		t.Fatalf("%d events are stored, %v; want %d", info.State.Msgs, err, 2*requests)
	}
	k.megabytes = info.State.Bytes >> 20
	t.Logf("%d events, %d MB, stored in %v", info.State.Msgs, k.megabytes, time.Since(began))
	return k
}

// bytesRead is how much this process has read, of files and sockets.
func bytesRead(t *testing.T) (n uint64) {
	t.Helper()
	io, err := os.ReadFile("/proc/self/io")
	if err == nil {
		_, err = fmt.Sscanf(string(io), "rchar: %d", &n)
	}
	if err != nil {
		t.Fatal(err)
	}
	return n
}
