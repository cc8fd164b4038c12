package bus_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"errand/internal/bus"
	"errand/internal/retry"
	"errand/internal/sandbox/devkit"
	"errand/internal/sandbox/devkit/devtest"
	"errand/pkg/messages"
)

// stand is a stream that answers as a test says.
type stand struct {
	*bus.Publisher
	nc *nats.Conn

	mu       sync.Mutex
	subjects map[string]bool // that answers were asked on
	stored   map[string]uint64
}

// standIn lets answer, on its own goroutine, do what it likes with a write.
func standIn(t *testing.T, nc *nats.Conn, answer func(s *stand, m *nats.Msg)) *stand {
	t.Helper()
	s := &stand{Publisher: newLog(t, nc).Publisher, nc: nc, subjects: map[string]bool{}, stored: map[string]uint64{}}
	if _, err := nc.Subscribe("elsewhere.>", func(m *nats.Msg) {
		s.mu.Lock()
		s.subjects[m.Reply] = true
		s.mu.Unlock()
		answer(s, m)
	}); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return s
}

// store is the answer to a write, the same if it is asked for again.
func (s *stand) store(m *nats.Msg) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stored[string(m.Data)] == 0 {
		s.stored[string(m.Data)] = uint64(len(s.stored) + 1)
	}
	return fmt.Appendf(nil, `{"stream":"S","seq":%d}`, s.stored[string(m.Data)])
}

// write publishes and reports an answer that is another write's.
func (s *stand) write(ctx context.Context, t *testing.T, what string) error {
	a, err := s.Publish(ctx, &nats.Msg{Subject: "elsewhere.x.y." + what, Data: []byte(what)})
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && a.Sequence != s.stored[what] {
		t.Errorf("%s: its answer says that it is stored at %d, want %d", what, a.Sequence, s.stored[what])
	}
	return err
}

func TestAReplySubjectIsUsedAgain(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	s := standIn(t, nc, func(s *stand, m *nats.Msg) { _ = m.Respond(s.store(m)) })
	for n := range 100 {
		if err := s.write(t.Context(), t, fmt.Sprint(n)); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.subjects) != 1 {
		t.Errorf("%d reply subjects for writes one after the other, want 1", len(s.subjects))
	}
}

func TestAReplySubjectThatIsOwedAnAnswerIsNotUsedAgain(t *testing.T) {
	for what, c := range map[string]struct {
		answer string // "": none
		want   error
	}{
		"none in time": {"", bus.ErrNoAck}, "nothing that can be read": {"-", bus.ErrNoAck},
		"a fault": {`{"error":{"code":503,"err_code":10077}}`, nil},
	} {
		devtest.InBubble(t, func(t *testing.T, _ *devkit.NATS, nc *nats.Conn) {
			var late *nats.Msg // the first write
			s := standIn(t, nc, func(s *stand, m *nats.Msg) {
				if late == nil {
					if late = m; c.answer != "" {
						_ = m.Respond([]byte(c.answer))
					}
					s.store(m)
					return
				}
				_ = late.Respond([]byte(`{"stream":"S","seq":1000}`))
				_ = m.Respond(s.store(m))
			})
			began := time.Now()
			err := s.write(t.Context(), t, "first")
			if err == nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("%s: got %v, want %v", what, err, c.want)
			}
			if took := time.Since(began); c.answer == "" && (took < retry.Answer || took > retry.Answer+time.Second) {
				t.Errorf("%s: given up after %v", what, took)
			}
			for n := range 5 {
				if err := s.write(t.Context(), t, fmt.Sprint(n)); err != nil {
					t.Errorf("%s: %v", what, err)
				}
			}
			if len(s.subjects) != 2 {
				t.Errorf("%s: %d reply subjects, want the first one's and another", what, len(s.subjects))
			}
			synctest.Wait()
		})
	}
}

// Writers go away and are answered late, not at all, twice, and by a fault: nobody gets an answer that is another's.
func TestEveryAnswerReachesItsOwnWrite(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	var mu sync.Mutex
	var owed []func()
	s := standIn(t, nc, func(s *stand, m *nats.Msg) {
		ack := s.store(m)
		said := func() { _ = nc.Publish(m.Reply, ack) }
		mu.Lock()
		defer mu.Unlock()
		switch dice := rand.IntN(10); {
		case dice == 0: // late, or never
			owed = append(owed, said)
		case dice < 4: // once more later
			said()
			owed = append(owed, said)
		case dice == 4:
			_ = m.Respond([]byte(`{"error":{"code":400,"err_code":10071}}`))
			owed = append(owed, said)
		default:
			said()
		}
		if len(owed) > 0 && rand.IntN(3) == 0 {
			i := rand.IntN(len(owed))
			owed[i]()
			owed[i] = owed[len(owed)-1]
			owed = owed[:len(owed)-1]
		}
	})
	var writers sync.WaitGroup
	for w := range 8 {
		writers.Go(func() {
			for n := range 300 {
				ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
				_ = s.write(ctx, t, fmt.Sprint(w, "-", n)) // whether it succeeds depends on the dice
				stop()
			}
		})
	}
	writers.Wait()
	if n := len(s.subjects); n > 2000 {
		t.Errorf("%d reply subjects for 2400 writes", n)
	}
}

func TestAnAnswerIsReadAsJSONIs(t *testing.T) {
	for _, text := range []string{`{"stream":"S","seq":12}`, `{"stream":"S","seq":0}`, `{"stream":"S","seq":012}`,
		`{"stream":"S","seq":12,"duplicate":true}`,
		`{"stream":"S","domain":"d","seq":12}`, `{"stream":"T","seq":12}`, `{"stream":"S2","seq":12}`,
		`{"stream":"S","seq":12} `, `{"stream":"S","seq":}`,
		`{"stream":"S","seq":99999999999999999999}`, `{"stream":"S"`, `{"stream":"`, ""} {
		var want bus.Ack
		bad := json.Unmarshal([]byte(text), &want) != nil || want.Stream == "" || want.Sequence == 0
		for _, known := range []string{"", "S"} {
			if got, err := bus.ReadAck(&nats.Msg{Data: []byte(text)}, known); (err != nil) != bad || !bad && got != want {
				t.Errorf("%s of %q: got %+v, %v, want %+v", text, known, got, err, want)
			}
		}
	}
}

// The server's usual answer is recognized without a JSON decoder, which takes half as long as encoding the event.
func TestTheServersUsualAnswerIsReadWithoutAllocations(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	answer, err := nc.Request(messages.Delivery.Subject(messages.Delivered, messages.Unmatched), nil, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(10, func() { _, err = bus.ReadAck(answer, bus.MailDeliveries) }); n > 0 || err != nil {
		t.Errorf("%s: %v allocations, %v", answer.Data, n, err)
	}
}

// Where no stream takes a subject, the error says so, and that the message was not acknowledged.
func TestNobodyAnswersWhereThereIsNoStream(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	_, err := newLog(t, nc).Publisher.Publish(t.Context(), nats.NewMsg("elsewhere.x.y.z"))
	if !errors.Is(err, bus.ErrNoAck) || !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("got %v, want ErrNoAck and ErrNoResponders", err)
	}
}

// A message that was stored long before is acknowledged at once, with its old sequence.
func TestARepeatedMessageIsAcknowledgedAtOnce(t *testing.T) {
	devtest.InBubble(t, func(t *testing.T, _ *devkit.NATS, nc *nats.Conn) {
		p, began := newLog(t, nc).Publisher, time.Now()
		for n, id := range []string{"a", "b", "a"} {
			m := &nats.Msg{Subject: "dead.mail.send.requested", Header: nats.Header{nats.MsgIdHdr: {id}}}
			if a, err := p.Publish(t.Context(), m); err != nil || a.Sequence != uint64(n%2+1) {
				t.Errorf("message %d: %+v, %v", n, a, err)
			}
		}
		if took := time.Since(began); took >= retry.Answer {
			t.Errorf("it took %v", took)
		}
	})
}
