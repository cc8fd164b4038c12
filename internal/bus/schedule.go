package bus

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"errand/internal/retry"
	"errand/internal/wire"
	"errand/pkg/messages"
)

// A scheduled request leaves its queue, where it would take a place among those in flight, and waits in the servers:
//
//	mandate.enroll.requested ─► scheduled.mandate.enroll.at.<id>.<contents>    a message schedule of nats-server
//	           ▲                            │ at its time
//	           └──── Schedules.Run ◄── scheduled.mandate.enroll.due.<id>.<contents>
//
// The streams of schedules are separate: where a stream takes schedules, a publisher can remove what others have published.

// Schedule says which request is deferred until when.
type Schedule struct {
	Operation   messages.Operation
	Lane        string
	ID          string // that it runs under
	Fingerprint string // of its contents; a correction does not replace it
	Sequence    uint64 // of its deferred event
	At          time.Time
}

// HeaderScheduled marks the message of a request that was scheduled: the sequence of HeaderRequestID's deferred event.
const HeaderScheduled = "Errand-Scheduled"

// headerSchedule is when a server sends the message, as @at TIME.
const headerSchedule = "Nats-Schedule"

// headerLane keeps the lane of a scheduled request.
const headerLane = "Errand-Lane"

// HeaderMsgID keeps a request's Nats-Msg-Id where it is stored again.
const HeaderMsgID = "Errand-Msg-Id"

// ScheduledOf is the stream that keeps the scheduled requests of an operation.
func ScheduledOf(op messages.Operation) string {
	if QueueOf(op).Stream == MailRequests {
		return MailScheduled
	}
	return MandateScheduled
}

// ScheduledFilter matches what is kept of a scheduled request, before its time and after; id may be *.
func ScheduledFilter(op messages.Operation, id string) string {
	return "scheduled." + string(op) + ".*." + id + ".*"
}

// contents is how much of a fingerprint tells the contents of one id apart.
const contents = 16

// ErrTooLarge means that a request with what is noted beside it would not fit into its queue again.
var ErrTooLarge = errors.New("nats: the request is too large to be scheduled")

// Schedule keeps a request until its time; without its own headers if it would be too large with them. Repeating it changes nothing.
// Errors: ErrTooLarge, or Publish's.
func (p *Publisher) Schedule(ctx context.Context, r *Request, s Schedule) error {
	fits := func(m *nats.Msg) bool {
		return int64(Due(m.Subject, m.Header, m.Data).Size()) <= p.nc.MaxPayload()-room
	}
	m := s.Message(r)
	if !fits(m) {
		for name := range OwnHeaders(r.Header) {
			delete(m.Header, name)
		}
	}
	if !fits(m) {
		return ErrTooLarge
	}
	if _, err := p.Publish(ctx, m); err != nil {
		return fmt.Errorf("bus: schedule %s: %w", s.ID, err)
	}
	return nil
}

// Message is the message that keeps a request.
func (s Schedule) Message(r *Request) *nats.Msg {
	of := s.ID + "." + s.Fingerprint[:min(contents, len(s.Fingerprint))]
	m := &nats.Msg{Subject: "scheduled." + string(s.Operation) + ".at." + of, Data: r.Data, Header: OwnHeaders(r.Header)}
	m.Header[headerSchedule] = []string{"@at " + s.At.UTC().Format(time.RFC3339Nano)}
	m.Header["Nats-Schedule-Target"] = []string{"scheduled." + string(s.Operation) + ".due." + of}
	m.Header[HeaderRequestID] = []string{s.ID}
	m.Header[HeaderScheduled] = []string{strconv.FormatUint(s.Sequence, 10)}
	if s.Lane != "" {
		m.Header[headerLane] = []string{s.Lane}
	}
	if id := r.Header.Get(nats.MsgIdHdr); id != "" {
		m.Header[HeaderMsgID] = []string{wire.Cut(id)}
	}
	if reopened := r.Header.Get(HeaderReopened); reopened != "" {
		m.Header[HeaderReopened] = []string{reopened}
	}
	return m
}

// Due is the message that a scheduled request is published with again, as its queue takes it.
func Due(subject string, header nats.Header, data []byte) *nats.Msg {
	m := &nats.Msg{Subject: scheduledOperation(subject).RequestedIn(header.Get(headerLane)), Data: data, Header: OwnHeaders(header)}
	for _, name := range []string{HeaderRequestID, HeaderScheduled, HeaderReopened, HeaderMsgID} {
		if value := header.Get(name); value != "" {
			m.Header[name] = []string{value}
		}
	}
	return m
}

// scheduledOperation is the operation in a subject of a scheduled request, "" if it is of something else.
func scheduledOperation(subject string) messages.Operation {
	rest, ok := strings.CutPrefix(subject, "scheduled.")
	if !ok {
		return ""
	}
	return messages.ParseSubject(rest).Operation
}

// Schedules moves requests whose time has come into their queues.
type Schedules struct {
	Publisher *Publisher
	Queue     *Pull
	Logger    zerolog.Logger
}

// Run moves requests until ctx ends. One that is moved twice runs once, as any repeat.
func (s Schedules) Run(ctx, _ context.Context) error {
	var looking sync.WaitGroup
	looking.Go(func() { s.remind(ctx) })
	defer looking.Wait()
	defer s.Queue.Close()
	said := ""
	for ctx.Err() == nil {
		var moving errgroup.Group
		move := func(r *Request) { moving.Go(func() error { return s.move(ctx, r) }) }
		r, err := s.Queue.Next(ctx, 0)
		if r != nil {
			move(r)
			err = s.Queue.Some(ctx, s.Queue.Max(), move)
		}
		if failed := moving.Wait(); failed != nil {
			err = failed
		}
		switch {
		case err == nil, errors.Is(err, ErrNoMessage):
			said = ""
			continue
		case ctx.Err() == nil && err.Error() != said:
			said = err.Error()
			s.Logger.Warn().Str("consumer", s.Queue.Name()).Err(err).Msg("scheduled requests are not moved to their queue")
		}
		retry.Pause(ctx, retry.MissingConsumer)
	}
	return nil
}

// remind stores schedules again that are overdue. A server whose storage was full at their time does not try again before it restarts.
// It reads one page of what is scheduled at a time, whatever there is, and the next one at once only where some were overdue.
func (s Schedules) remind(ctx context.Context) {
	of := s.Queue.queue.CachedInfo()
	scan := Scan{Stream: of.Stream, Filter: strings.Replace(of.Config.FilterSubject, ".due.", ".at.", 1), Page: eachPage}
	every, said := max(retry.Overdue, s.Queue.Idle), ""
	for pause := every; retry.Pause(ctx, pause); {
		pause = every
		page, err := scan.Next(ctx, s.Publisher.nc)
		if err != nil {
			continue
		}
		again, rest, err := s.again(ctx, page)
		if again > 0 {
			said = ""
			s.Logger.Warn().Str("stream", of.Stream).Int("requests", again).Msg("scheduled requests were overdue: they are scheduled again")
		}
		if err != nil && err.Error() != said {
			said = err.Error()
			s.Logger.Warn().Str("stream", of.Stream).Err(err).Msg("an overdue request cannot be scheduled again")
		}
		switch {
		case len(rest) > 0:
			scan.From = rest[0].Sequence
		case len(page) == 0 || page[len(page)-1].Pending == 0:
			scan.From = 0
		case again > 0:
			pause = 0
		}
	}
}

// again stores again what is overdue of a page, and passes over what cannot be stored. The rest is what it left when no more could be.
func (s Schedules) again(ctx context.Context, page []Message) (stored int, rest []Message, err error) {
	for i, m := range page {
		at, _ := time.Parse(time.RFC3339, strings.TrimPrefix(m.Header.Get(headerSchedule), "@at "))
		if time.Since(at) < retry.Overdue || time.Since(m.Time) < retry.Overdue { // what was stored again just now is not late
			continue
		}
		expect(m.Header, m.Sequence)
		_, failed := s.Publisher.Publish(ctx, &nats.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data})
		switch {
		case failed == nil:
			stored++
		case isConflict(failed): // by another replica, or it was cancelled
		case IsFinal(failed):
			err = fmt.Errorf("%s: %w", m.Subject, failed)
		default:
			return stored, page[i:], failed
		}
	}
	return stored, nil, err
}

func (s Schedules) move(ctx context.Context, r *Request) error {
	due := Due(r.Subject, r.Header, r.Data)
	_, err := s.Publisher.Publish(ctx, due)
	if errors.Is(err, nats.ErrNoResponders) { // its lane may be gone
		due.Subject = scheduledOperation(r.Subject).Requested()
		_, err = s.Publisher.Publish(ctx, due)
	}
	if err != nil {
		_ = r.NakWithDelay(retry.Fault.Wait(int(min(r.Delivered, 100))))
		return err
	}
	return r.Ack()
}
