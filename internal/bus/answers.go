package bus

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/retry"
)

// answers brings the server's answer to a write to whoever waits for it. The server works
// less for a reply subject that it knows, so one is used again, for the same stream, when its
// write was stored. No other answer may be taken for a later one's:
//
//   - a subject whose answer did not come, or was another, is given up for good: the answer
//     may come late. So are the stream's free ones where none came: a stream that was made
//     again, or restored, begins with lower sequences, and each would lose a write to that;
//   - in a cluster the old leader and the new one may both say that a write was stored. What
//     is written later has a higher sequence than everything that was answered on this subject before.
type answers struct {
	prefix string

	mu       sync.Mutex
	subjects uint64             // so far
	slots    map[string]*slot   // by what their subject ends with
	free     map[string][]*slot // by stream
	timer    *time.Timer        // ticks while somebody waits
	ticking  bool
}

// slot is a reply subject, and who waits for an answer on it.
type slot struct {
	token, subject string
	again          bool        // it may be used again
	done           chan answer // has room for one
	waits          bool
	ticks          int // that somebody has waited for
	stored         Ack // the last one
}

// answer is what became of a write.
type answer struct {
	Ack
	err error
}

// ticks is in how many steps a write without an answer is given up.
const ticks = 10

func newAnswers(prefix string) *answers {
	a := &answers{prefix: prefix, slots: map[string]*slot{}, free: map[string][]*slot{}}
	a.timer = time.AfterFunc(time.Hour, a.tick)
	a.timer.Stop()
	return a
}

// take gives a slot for a write to a stream. again: it may be one that was used before, and
// may be used again.
func (a *answers) take(stream string, again bool) *slot {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.ticking {
		a.ticking = true
		a.timer.Reset(retry.Answer / ticks)
	}
	if free := a.free[stream]; again && len(free) > 0 {
		s := free[len(free)-1]
		a.free[stream] = free[:len(free)-1]
		s.waits, s.ticks = true, 0
		return s
	}
	a.subjects++
	token := strconv.FormatUint(a.subjects, 36)
	s := &slot{token: token, subject: a.prefix + token, again: again, done: make(chan answer, 1), waits: true}
	a.slots[token] = s
	return s
}

// wait waits for the answer.
func (s *slot) wait(ctx context.Context) (Ack, error) {
	select {
	case a := <-s.done:
		return a.Ack, a.err
	case <-ctx.Done():
		return Ack{}, fmt.Errorf("%w: %w", ErrNoAck, context.Cause(ctx))
	}
}

// leave is called when the waiting is over.
func (a *answers) leave(s *slot, stream string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s.waits = false
	if errors.Is(err, ErrNoAck) {
		a.forget(stream)
	}
	if err == nil && s.again {
		a.free[stream] = append(a.free[stream], s)
	} else {
		delete(a.slots, s.token)
	}
}

// forget gives up the slots of a stream that nobody uses now.
func (a *answers) forget(stream string) {
	for _, s := range a.free[stream] {
		delete(a.slots, s.token)
	}
	delete(a.free, stream)
}

// came takes what came on a reply subject.
func (a *answers) came(m *nats.Msg) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.slots[m.Subject[len(a.prefix):]]
	if s == nil || !s.waits {
		return
	}
	ack, err := readAck(m.Data, s.stored.Stream)
	if err == nil {
		if ack.Stream == s.stored.Stream && ack.Sequence <= s.stored.Sequence {
			return // the answer to an earlier write, again
		}
		s.stored = ack
	}
	a.end(s, answer{ack, err})
}

// end wakes who waits.
func (a *answers) end(s *slot, with answer) {
	s.waits = false
	s.done <- with
}

// tick gives up what had no answer in time.
func (a *answers) tick() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ticking = false
	for _, s := range a.slots {
		if !s.waits {
			continue
		}
		s.ticks++
		if s.ticks > ticks {
			a.end(s, answer{err: ErrNoAck})
		} else {
			a.ticking = true
		}
	}
	if a.ticking {
		a.timer.Reset(retry.Answer / ticks)
	}
}

// lost wakes everybody who waits: what the server answered before the connection
// broke never comes. The next server may be one that lost some of what it had stored.
func (a *answers) lost() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for stream := range a.free {
		a.forget(stream)
	}
	for _, s := range a.slots {
		if s.waits {
			a.end(s, answer{err: errBroken})
		}
	}
}

// Ack says where a message was stored.
type Ack struct {
	Stream    string `json:"stream"`
	Sequence  uint64 `json:"seq"`
	Duplicate bool   `json:"duplicate"` // it was stored before, by its Nats-Msg-Id
}

// ErrNoAck means that nobody knows whether the message was stored.
var ErrNoAck = errors.New("nats: no acknowledgement")

// errBroken is ErrNoAck for what was on its way when the connection broke.
var errBroken = fmt.Errorf("%w: the connection broke", ErrNoAck)

// readAck is ParseAck, quick for {"stream":"known","seq":1}.
func readAck(data []byte, known string) (Ack, error) {
	rest, ok := bytes.CutPrefix(data, []byte(`{"stream":"`))
	if len(rest) > len(known) && string(rest[:len(known)]) == known && ok && known != "" {
		rest, ok = bytes.CutPrefix(rest[len(known):], []byte(`","seq":`))
		digits, ends := bytes.CutSuffix(rest, []byte("}"))
		if ok && ends && len(digits) > 0 && digits[0] != '0' {
			if seq, err := strconv.ParseUint(string(digits), 10, 64); err == nil {
				return Ack{Stream: known, Sequence: seq}, nil
			}
		}
	}
	return ParseAck(data)
}

// ParseAck reads the answer to a write. Errors: ErrNoAck when it says nothing, as when no
// stream listens; the server's *jetstream.APIError.
func ParseAck(data []byte) (Ack, error) {
	var a struct {
		Ack
		Error *jetstream.APIError `json:"error"`
	}
	switch err := json.Unmarshal(data, &a); {
	case err != nil, a.Error == nil && a.Stream == "":
		return Ack{}, ErrNoAck
	case a.Error != nil:
		return Ack{}, a.Error
	}
	return a.Ack, nil
}
