package act

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"errand/internal/bus"
	"errand/internal/history"
	"errand/internal/oncall/inspect"
	"errand/pkg/messages"
)

// retrying is a deferred request.
type retrying struct {
	op   messages.Operation
	last history.Entry
	m    *nats.Msg // its message, as it is published once more
	says string
}

// Retry has a deferred request run now: its wait is ended by an event, and its message is published once more, since NATS delivers the
// one that waits at its own time, when it is a repeat. A call of unknown fate behind it is looked up as ever. It is refused where that
// would change nothing: nothing is deferred, or its operation is paused or held. Errors: as for Cancel.
func (r Requests) Retry(ctx context.Context, op messages.Operation, id, why string) (messages.Operation, error) {
	found, err := onlyOne(ctx, op, id, r.retriable)
	if errors.Is(err, errUnseen) {
		err = refuse("%s is not deferred: it waits in its queue, or nobody has seen it", id)
	}
	if err != nil {
		return op, err
	}
	a := Act{Verb: Retry, Operation: found.op, Target: id, Why: why, Plan: found.says}
	_, err = r.Do(ctx, a, func(ctx context.Context) (string, error) {
		if err := r.endWait(ctx, found.op, id, found.last); err != nil {
			return "", err
		}
		if err := r.endBatches(ctx, found.op, id); err != nil {
			return "", err
		}
		duplicate, err := r.keep(ctx, found.m, found.m.Header.Get(nats.MsgIdHdr))
		if err == nil && duplicate {
			err = errors.New("NATS takes it for a repeat, since it was published within the last two minutes: say it again then")
		}
		return "published again", err
	})
	return found.op, err
}

func (r Requests) retriable(ctx context.Context, op messages.Operation, id string) (found retrying, err error) {
	last, err := r.Log.Leader(ctx, op, op.Filter(id))
	if err == nil && last.Sequence == 0 {
		err = errUnseen
	}
	if err != nil {
		return found, err
	}
	if state := messages.StateOf(last.Subject); state != messages.Deferred {
		return found, refuse("%s is %s, and not deferred", id, state)
	}
	f, _ := history.ReadFacts(last.Body) // what cannot be read is not stored over
	scheduled := f.Reason == messages.ReasonScheduled
	if scheduled && f.NotBefore.After(time.Now()) {
		return found, refuse("%s is scheduled, %s: cancel it, and publish it again with another time", id, f.Message)
	}
	waiting, err := r.Queues.Waiting(ctx, op, id)
	if _, long := errors.AsType[*inspect.SkippedError](err); err != nil && !long {
		return found, err
	}
	if scheduled { // as where the servers had no room at its time, until a program finds it
		if err := r.Queues.Scheduled(ctx, op, id, 0, func(m bus.Message) bool {
			due := bus.Due(m.Subject, m.Header, m.Data)
			waiting = append(waiting, bus.Message{Subject: due.Subject, Header: due.Header, Data: due.Data})
			return true
		}); err != nil {
			return found, err
		}
	}
	i := slices.IndexFunc(waiting, func(m bus.Message) bool { return f.Fingerprint == "" || fingerprintOf(op, m.Data) == f.Fingerprint })
	if i < 0 {
		return found, refuse("its queue does not have %s, or is too long to be searched", id)
	}
	of := waiting[i]
	m, err := r.message(ctx, op, id, of)
	if err != nil {
		return found, err
	}
	stopped, err := r.Reader.Stopped(ctx, bus.QueueOf(op).In(messages.ParseSubject(m.Subject).Lane), time.Now())
	if err == nil && stopped != "" {
		err = refuse("%s would not be begun: %s", id, stopped)
	}
	if err != nil {
		return found, err
	}
	m.Header.Set(nats.MsgIdHdr, of.Header.Get(nats.MsgIdHdr))
	again := false
	for _, name := range []string{bus.HeaderReopened, bus.HeaderScheduled, bus.HeaderMsgID} {
		if value := of.Header.Get(name); value != "" {
			m.Header.Set(name, value)
			again = again || name != bus.HeaderMsgID
		}
	}
	named, _ := messages.Check(op, of.Data) // it could be read when it was deferred
	switch {
	case named.RequestID == id, again:
		m.Header.Set(nats.MsgIdHdr, "retry."+string(op)+"."+id+"."+strconv.FormatUint(last.Sequence, 10))
	case m.Header.Get(nats.MsgIdHdr) != id:
		return found, refuse("%s was published without an id: only its own message may run it, at its time", id)
	}
	return retrying{op, last, m, "deferred until " + at(f.NotBefore.Time) + " (" + string(f.Reason) + "); run it now"}, nil
}

// endBatches ends the waits of a message's batches. One that waited before the message was opened again waits no longer, and what is
// stored over it would hide that it may be sent once more.
func (r Requests) endBatches(ctx context.Context, op messages.Operation, id string) error {
	if op != messages.Send {
		return nil
	}
	var ids []string
	err := bus.EachOf(ctx, r.Conn, bus.MailEvents, messages.Batch.Subject(messages.Deferred, id+".*"), func(m bus.Message) bool {
		s := messages.ParseSubject(m.Subject)
		ids = append(ids, messages.BatchID(s.ID, s.Batch))
		return true
	})
	var reopened history.Entry
	if err == nil {
		reopened, err = r.Log.Leader(ctx, op, op.Subject(messages.Reopened, id))
	}
	for _, batch := range ids {
		if err != nil {
			break
		}
		var last history.Entry
		last, err = r.Log.Leader(ctx, messages.Batch, messages.Batch.Filter(batch))
		if err == nil && messages.StateOf(last.Subject) == messages.Deferred && last.Sequence > reopened.Sequence {
			err = r.endWait(ctx, messages.Batch, batch, last)
		}
	}
	return err
}

// endWait stores over a deferred event the same one, of which the wait is over. All that it says of earlier calls stays.
func (r Requests) endWait(ctx context.Context, op messages.Operation, id string, last history.Entry) error {
	f, err := history.ReadFacts(last.Body)
	if err != nil || !f.NotBefore.After(time.Now()) { // nothing is stored over what cannot be read
		return err
	}
	var body messages.Body
	now := messages.Time{Time: time.Now()}
	if op == messages.Batch {
		b := &messages.BatchBody{}
		err, body = messages.DecodeEvent(last.Body, b), b
		b.NotBefore = &now
	} else {
		b := &messages.DeferredBody{}
		err, body = messages.DecodeEvent(last.Body, b), b
		b.NotBefore = now
	}
	if err != nil {
		return err
	}
	h := &history.History{Log: r.Log, Operation: op, ID: id, Trace: last.Trace, Lane: f.Lane}
	return storeOver(ctx, h, last.Sequence, messages.Deferred, body)
}
