package bus

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"errand/internal/retry"
	"errand/internal/wire"
	"errand/internal/wire/mailkey"
	"errand/pkg/messages"
)

// The stream SUPPRESSIONS says of which addresses mail has bounced for good. It has keys, and no address:
//
//	log-poller ─► suppression.bounced.<key>   the last bounce ─┐
//	a person   ─► suppression.decided.<key>   add or remove ───┴─► Suppressed: the later counts ─► mail-consumer
//
// Each has its time: a bounce that is stored again, after a crash or when the whole log is read again, is as old as it was, and does
// not undo a removal.

// Suppression is what is stored about an address.
type Suppression struct {
	Key mailkey.Key `json:"-"`
	// At is when the mail bounced, or when a person decided.
	At        messages.Time `json:"at"`
	RequestID string        `json:"request_id,omitempty"` // of the mail that bounced
	messages.SMTP
	By      string `json:"by,omitempty"` // who decided
	Why     string `json:"why,omitempty"`
	Removed bool   `json:"removed,omitempty"` // a person decided that it is written to again
}

const (
	bounced = "bounced"
	decided = "decided"
)

func suppressionSubject(kind, key string) string { return "suppression." + kind + "." + key }

// SuppressionFilter matches what is stored about an address.
func SuppressionFilter(k mailkey.Key) string { return suppressionSubject("*", k.String()) }

// Suppress stores suppressions, in no order.
func (p *Publisher) Suppress(ctx context.Context, all []Suppression) error {
	var storing errgroup.Group
	storing.SetLimit(64)
	for _, s := range all {
		storing.Go(func() error { return p.suppress(ctx, s) })
	}
	if err := storing.Wait(); err != nil {
		return fmt.Errorf("bus: store suppressions: %w", err)
	}
	return nil
}

// suppress stores a person's decision, or a bounce if none as late is stored: a log is read from its newest row back.
func (p *Publisher) suppress(ctx context.Context, s Suppression) error {
	body, err := wire.Marshal(s)
	if err != nil {
		return err
	}
	m := &nats.Msg{Subject: suppressionSubject(decided, s.Key.String()), Data: body}
	if s.By == "" {
		m.Subject, m.Header = suppressionSubject(bounced, s.Key.String()), nats.Header{}
	}
	for last := uint64(0); ; {
		if s.By == "" {
			Fence(m.Header, m.Subject, last)
		}
		if _, err = p.Publish(ctx, m); !isConflict(err) {
			return err
		}
		there, err := fromLeader(ctx, p.nc, Suppressions, lastOf(m.Subject))
		if err != nil {
			return err
		}
		if last = 0; there != nil {
			if was, ok := ReadSuppression(*there); ok && !s.At.After(was.At.Time) {
				return nil
			}
			last = there.Sequence
		}
	}
}

// ReadSuppression reads what a message of the stream says; ok: it is a suppression.
func ReadSuppression(m Message) (s Suppression, ok bool) {
	kind, key, _ := strings.Cut(strings.TrimPrefix(m.Subject, "suppression."), ".")
	if s.Key.UnmarshalText([]byte(key)) != nil || json.Unmarshal(m.Data, &s) != nil {
		return s, false
	}
	if kind == decided {
		s.At = messages.Time{Time: m.Time} // the servers' clock, whatever the person's machine thinks
	}
	return s, true
}

// Suppressed is which addresses are not written to, as far as the stream was read. It is safe for concurrent use.
type Suppressed struct {
	Conn   *nats.Conn
	For    time.Duration // how long a bounce counts
	Logger zerolog.Logger

	next    uint64    // sequence to read on from
	cleared time.Time // when what had expired was removed last

	mu    sync.RWMutex // guards what follows
	known map[mailkey.Key]state
	read  time.Time // when all was read last
}

// state is the last word on an address in 8 bytes, since there may be a million: the time in milliseconds since 1970 (42 bits), the
// reply's code (10), and the last two numbers of its enhanced code (4 and 8; 0 where they are larger than any in use).
type state uint64

// Codes that no reply has.
const (
	byPerson = 1
	removed  = 2
)

func (s Suppression) state() state {
	code := uint64(s.Code)
	switch {
	case s.Removed:
		code = removed
	case s.By != "":
		code = byPerson
	}
	var subject, detail uint64
	if parts := strings.Split(s.Enhanced, "."); len(parts) == 3 {
		subject, _ = strconv.ParseUint(parts[1], 10, 4) // too large a one is cut, and explains less
		detail, _ = strconv.ParseUint(parts[2], 10, 8)
	}
	return state(uint64(s.At.UnixMilli())<<22 | code&0x3ff<<12 | subject<<8 | detail)
}

func (s state) at() time.Time { return time.UnixMilli(int64(s >> 22)) }

func (s state) code() int { return int(s >> 12 & 0x3ff) }

func (s state) why() string {
	switch code, enhanced := s.code(), fmt.Sprintf("5.%d.%d", s>>8&0xf, s&0xff); {
	case code == byPerson:
		return "added by a person"
	case code == 0:
		return "bounced: " + enhanced
	case enhanced == "5.0.0": // most replies without an enhanced code
		return fmt.Sprintf("bounced: %d", code)
	default:
		return fmt.Sprintf("bounced: %d %s", code, enhanced)
	}
}

// Find reports whether an address is not to be written to, by its keys, and since when and why.
func (s *Suppressed) Find(keys ...mailkey.Key) (at time.Time, why string, found bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var last state
	for _, k := range keys {
		last = max(last, s.known[k])
	}
	if last == 0 || last.code() == removed || s.expired(last) {
		return at, "", false
	}
	return last.at(), last.why(), true
}

// Read reads what is new in the stream. Errors: ErrNoStream, or that no answer came; what is known stays known.
func (s *Suppressed) Read(ctx context.Context) error {
	for {
		last, err := fromLeader(ctx, s.Conn, Suppressions, lastOf(">")) // a replica may lag behind
		if err != nil {
			return noStream(Suppressions, err)
		}
		end := uint64(0)
		if last != nil {
			end = last.Sequence
		}
		if s.next > end+1 { // it is another stream, or its last messages were erased
			s.next = 0
		}
		if err := s.readTo(ctx, end); err != nil {
			return err
		}
		if s.next > end {
			break
		}
		if !retry.Pause(ctx, retry.Follow) { // it lags behind, or the last message was erased meanwhile
			return context.Cause(ctx)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read = time.Now()
	if time.Since(s.cleared) > time.Hour {
		maps.DeleteFunc(s.known, func(_ mailkey.Key, last state) bool { return s.expired(last) })
		s.cleared = s.read
	}
	return nil
}

// readTo reads up to a sequence, as far as the replica that answers has it.
func (s *Suppressed) readTo(ctx context.Context, end uint64) error {
	scan := Scan{Stream: Suppressions, Filter: ">", Page: allPage, From: max(s.next, 1)}
	for scan.From <= end {
		page, err := scan.Next(ctx, s.Conn)
		if err != nil || len(page) == 0 {
			return err
		}
		s.take(page)
		s.next = scan.From
	}
	s.next = scan.From
	return nil
}

func (s *Suppressed) take(page []Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		s.known = map[mailkey.Key]state{}
	}
	for _, m := range page {
		if said, ok := ReadSuppression(m); ok && !s.expired(said.state()) {
			s.known[said.Key] = max(said.state(), s.known[said.Key])
		}
	}
}

func (s *Suppressed) expired(last state) bool { return time.Since(last.at()) > s.For }

// Run reads until ctx ends what is new. Where the stream cannot be read, what is known counts.
func (s *Suppressed) Run(ctx, _ context.Context) error {
	said := ""
	for retry.Pause(ctx, retry.Suppressions) {
		err := s.Read(ctx)
		if err == nil {
			said = ""
		} else if text := Explain(s.Conn, err).Error(); ctx.Err() == nil && text != said {
			said = text
			s.Logger.Warn().Str("stream", Suppressions).Err(err).Msg("new bounces are not known: addresses are suppressed by what was read")
		}
	}
	return nil
}

// Note says that the stream was not read for a while; "" if it was.
func (s *Suppressed) Note() string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if time.Since(s.read) < retry.Suppressed {
		return ""
	}
	return fmt.Sprintf("the stream %s was last read at %s: bounces since then are not known", Suppressions, s.read.UTC().Format(time.RFC3339))
}

// Says is what is known of an address in a few words.
func (s Suppression) Says() string {
	switch {
	case s.By == "":
		return s.state().why()
	case s.Removed:
		return "removed by " + s.By + ": " + s.Why
	}
	return "added by " + s.By + ": " + s.Why
}

// SuppressionOf returns the last word on an address by its keys, as any replica has it; nil if there is none. Errors: ErrNoStream.
func SuppressionOf(ctx context.Context, nc *nats.Conn, keys ...mailkey.Key) (last *Suppression, err error) {
	for _, k := range keys {
		for _, kind := range []string{bounced, decided} {
			m, there, err := Last(ctx, nc, Suppressions, suppressionSubject(kind, k.String()))
			if err != nil {
				return nil, err
			}
			if s, ok := ReadSuppression(m); there && ok && (last == nil || s.state() > last.state()) {
				last = &s
			}
		}
	}
	return last, nil
}
