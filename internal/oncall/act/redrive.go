package act

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/failpoint"
	"errand/internal/history"
	"errand/internal/oncall/inspect"
	"errand/internal/retry"
	"errand/pkg/messages"
)

// Requests are what a person redrives and cancels.
//
//	dead letter ─► plan ─► AUDIT ─► reopened stored over the outcome ─► its bytes published again ─► AUDIT
//	                                fenced: of two at once one          under the same id
//
// Killed between the last two, it is finished by doing it again: what is reopened and not in
// its queue is published. Published twice it runs once, as any repeat.
//
// Rights in NATS beside the rights to read (errand show, errand dead): publish audit.*.<name>.*,
// *.*.requested, and of each operation reopened.* (redrive) and failed.* (cancel).
type Requests struct {
	Person
	Log    history.Log
	Reader inspect.Reader
	Queues Queues // Reader's, except in a simulation
}

// Queues are where requests wait.
type Queues interface {
	// Waiting returns the messages of a request that are in its queue; Queued returns which of some requests are in theirs, by when they
	// were reopened.
	Waiting(ctx context.Context, op messages.Operation, id string) ([]bus.Message, error)
	Queued(ctx context.Context, op messages.Operation, reopened map[string]time.Time) (map[string]bool, error)
	// Stream is the configuration of the queue's.
	Stream(ctx context.Context, op messages.Operation) (jetstream.StreamConfig, error)
	// Scheduled calls visit with what is scheduled of a request, until it returns false; newest is 0.
	Scheduled(ctx context.Context, op messages.Operation, id string, newest int, visit func(bus.Message) bool) error
	// Release puts that into its queue, before its time.
	Release(ctx context.Context, op messages.Operation, id string) error
	// Publish reports whether the message is taken for a duplicate.
	Publish(ctx context.Context, m *nats.Msg) (duplicate bool, err error)
}

type queues struct{ inspect.Reader }

func (q queues) Stream(ctx context.Context, op messages.Operation) (c jetstream.StreamConfig, err error) {
	stream, err := q.JS.Stream(ctx, bus.QueueOf(op).Stream)
	if err == nil {
		c = stream.CachedInfo().Config
	}
	return c, err
}

func (q queues) Publish(ctx context.Context, m *nats.Msg) (duplicate bool, err error) {
	ack, err := q.JS.PublishMsg(ctx, m)
	return err == nil && ack.Duplicate, err
}

// Requests are those that a person acts on.
func (p Person) Requests() Requests {
	reader := inspect.Reader{Conn: p.Conn, JS: p.JS}
	log := bus.EventStore{Publisher: p.Publisher, Source: "/errand/errand"}
	return Requests{Person: p, Log: log, Reader: reader, Queues: queues{reader}}
}

// Consent is what somebody has read in a plan and says by name.
type Consent struct {
	Why    string
	Accept []string // names of what may be done twice, as inspect.Name makes them, or All of the plan
	Force  []string // of what was done or cancelled
	Rate   float64  // a second; 0 means as fast as it goes
}

// All accepts whatever a plan shows.
const All = "all"

func (i Item) named(in []string) bool { return slices.Contains(in, inspect.Name(i.Sequence)) }

// checked is an error for names that are not of the plan, such as request ids: a request may have got another dead letter since.
func (c Consent) checked(items []Item) error {
	accept := slices.DeleteFunc(slices.Clone(c.Accept), func(name string) bool { return name == All })
	for _, name := range slices.Concat(accept, c.Force) {
		if !slices.ContainsFunc(items, func(i Item) bool { return i.named([]string{name}) }) {
			return fmt.Errorf("%w: %q is not a sequence of the plan, such as %s17", ErrNothingDone, name, inspect.BySequence)
		}
	}
	return nil
}

// consented is the item with the batches that are sent, or an error that says what is missing.
func (i Item) consented(c Consent) (Item, error) {
	accepted := i.named(c.Accept) || slices.Contains(c.Accept, All)
	switch i.Class.Info().Run {
	case inspect.RunsAsked:
		return i, nil
	case inspect.RunsAccepted:
		if accepted {
			i.Batches = append(slices.Clone(i.Batches), i.Unknown...)
			slices.Sort(i.Batches)
			return i, nil
		}
		if len(i.Batches) > 0 {
			return i, nil
		}
		return i, fmt.Errorf("%w: %s; it may be done twice, which was not accepted", ErrNothingDone, i.Says)
	case inspect.RunsForced:
		if i.named(c.Force) && (i.Operation != messages.Send || i.Class != inspect.WasDone) {
			return i, nil
		}
	}
	return i, fmt.Errorf("%w: %s", ErrNothingDone, i.Says)
}

// Redriven is how it went with one item.
type Redriven struct {
	Item
	Result  Result `json:"result"`
	Message string `json:"message,omitempty"`

	fault error // the other items would meet it too
}

// Redrive runs items again as a person has consented to, and calls report with the result of each, whatever ends it. What another
// person reopened meanwhile is theirs. Errors: ErrNoReason, ErrNothingDone of a name that is not in the plan, or ErrNotRecorded, which
// nothing is done after.
func (r Requests) Redrive(ctx context.Context, items []Item, c Consent, report func(Redriven)) error {
	if strings.TrimSpace(c.Why) == "" {
		return ErrNoReason
	}
	if err := c.checked(items); err != nil {
		return err
	}
	for n, item := range items {
		if n > 0 && c.Rate > 0 {
			retry.Pause(ctx, time.Duration(min(float64(time.Second)/c.Rate, float64(MaxPause))))
		}
		done := r.redrive(ctx, item, c)
		if report(done); done.fault != nil {
			for _, item := range items[n+1:] {
				report(item.notReached(done.fault))
			}
			return done.fault
		}
	}
	return nil
}

func (i Item) notReached(err error) Redriven {
	return Redriven{Item: i, Result: NotDone, Message: "not reached: " + err.Error()}
}

func (r Requests) redrive(ctx context.Context, item Item, c Consent) Redriven {
	if ctx.Err() != nil {
		return item.notReached(context.Cause(ctx))
	}
	done := Redriven{Item: item, Result: NotDone}
	item, err := item.consented(c)
	var m *nats.Msg
	if err == nil {
		m, err = r.message(ctx, item.Operation, item.RequestID, item.letter.Event.Message)
	}
	if err != nil {
		done.Message = err.Error()
		return done
	}
	did := func(ctx context.Context) (string, error) {
		seq, err := item.last, error(nil)
		if item.Class != inspect.Reopened {
			seq, err = reopen(ctx, r.Log, item, r.Name, c.Why)
		}
		if err != nil {
			return "", err
		}
		failpoint.Here(failpoint.BeforeRepublish)
		if err := r.publish(context.WithoutCancel(ctx), item, m, seq); err != nil { // begun is finished
			return "", fmt.Errorf("it is reopened and not published: do it again: %w", err)
		}
		failpoint.Here(failpoint.AfterRepublish)
		return "reopened and published", nil
	}
	done.Message, err = r.Do(ctx, Act{Verb: Redrive, Operation: item.Operation, Target: item.RequestID, Why: c.Why,
		Plan: string(item.Class) + ": " + item.Says}, did)
	if done.Result = resultOf(err); err != nil {
		done.Message = err.Error()
	}
	if errors.Is(err, ErrNotRecorded) {
		done.fault = err
	}
	return done
}

// Discard records that a person has seen items and leaves them as they are: they are no longer counted among what needs somebody.
// Errors: as for Do; the items before are discarded.
func (p Person) Discard(ctx context.Context, items []Item, why string) error {
	for _, i := range items {
		a := Act{Verb: Discard, Operation: i.Operation, Target: i.RequestID, Why: why, Plan: string(i.Class) + ": " + i.Says,
			DeadLetter: i.Sequence, Ending: bus.EndingOf(i.Operation, i.RequestID, i.letter.Event.Message.Header)}
		if _, err := p.Do(ctx, a, func(context.Context) (string, error) { return "seen, nothing to do", nil }); err != nil {
			return err
		}
	}
	return nil
}

// errMeanwhile says that the request is not as the plan has it.
var errMeanwhile = fmt.Errorf("%w: it went on meanwhile", ErrNothingDone)

// reopen stores that a person has the request of an item run again, over the event that the
// item was planned with, and returns the sequence. After any error but errMeanwhile it is not known whether it was.
func reopen(ctx context.Context, log history.Log, item Item, by, why string) (uint64, error) {
	if by == messages.ByCorrection {
		return 0, fmt.Errorf("%w: nobody is called %s", ErrNothingDone, by)
	}
	letter := item.letter.Event.Message
	h := &history.History{Log: log, Operation: item.Operation, ID: item.RequestID, Trace: bus.TraceOf(letter.Header),
		Lane: messages.ParseSubject(letter.Subject).Lane}
	err := storeOver(ctx, h, item.last, messages.Reopened, &messages.ReopenedBody{By: by, Why: why, Was: item.was,
		AfterUnknown: item.afterUnknown, Batches: item.Batches, BatchSize: item.batchSize, Fingerprint: item.fingerprint})
	return h.Sequence(), err
}

// message is a request's message as it is published again: in its lane, if that is still there.
func (r Requests) message(ctx context.Context, op messages.Operation, id string, of bus.Message) (*nats.Msg, error) {
	m := &nats.Msg{Subject: op.RequestedIn(messages.ParseSubject(of.Subject).Lane), Data: of.Data, Header: bus.OwnHeaders(of.Header)}
	m.Header[bus.HeaderRequestID] = []string{id}
	stream, err := r.Queues.Stream(ctx, op)
	if err != nil {
		return nil, fmt.Errorf("%w: the queue cannot be asked for: %w", ErrNothingDone, err)
	}
	if !slices.Contains(stream.Subjects, m.Subject) {
		m.Subject = op.Requested()
	}
	limit := int(stream.MaxMsgSize)
	const more = 256 // for the headers that are still to come
	if limit > 0 && m.Size()+more > limit {
		m.Header = nats.Header{bus.HeaderRequestID: {id}}
	}
	if limit > 0 && m.Size()+more > limit {
		return nil, fmt.Errorf("%w: it is too large for its queue", ErrNothingDone)
	}
	return m, nil
}

// publish stores the message of a request that was reopened by the event of a sequence. Its id is new, since the queue may be without a
// message that NATS still takes for a duplicate. Published by two people, it runs once.
func (r Requests) publish(ctx context.Context, item Item, m *nats.Msg, seq uint64) error {
	m.Header[bus.HeaderReopened] = []string{strconv.FormatUint(seq, 10)}
	_, err := r.keep(ctx, m, fmt.Sprintf("redrive.%s.%s.%d.%s", item.Operation, item.RequestID, seq, rand.Text()[:13]))
	return err
}

// keep publishes a message under a Nats-Msg-Id until it is stored, for some seconds.
func (r Requests) keep(ctx context.Context, m *nats.Msg, id string) (duplicate bool, err error) {
	m.Header[nats.MsgIdHdr] = []string{id}
	for n := 1; ; n++ {
		tried, cancel := context.WithTimeout(ctx, retry.Answer)
		duplicate, err = r.Queues.Publish(tried, m)
		cancel()
		if err == nil || bus.IsFinal(err) || n == publishTries || !retry.Pause(ctx, retry.Keep.Wait(n)) {
			return duplicate, err
		}
	}
}

// publishTries is how often a message is published until it is left reopened.
const publishTries = 3
