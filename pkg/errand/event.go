package errand

import (
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/pkg/messages"
)

// Event is one thing that happened to a request, as it is stored.
type Event struct {
	Operation messages.Operation // Batch for a batch of a message
	State     messages.State
	RequestID string // <stream>-<sequence> for a conflict
	Subject   string
	Sequence  uint64 // in the stream of events, or in your copy of it
	Time      time.Time
	Header    nats.Header // CloudEvents; ce-id is the same whenever the same event comes again
	Data      []byte      // the body, JSON
}

// Decode reads the body into its type of pkg/messages, such as a *messages.EnrollSucceeded for mandate.enroll.succeeded, or one of
// your own.
func (e Event) Decode(into any) error { return messages.DecodeEvent(e.Data, into) }

// Final reports whether the event ends its request. Resolved may follow an uncertain one, and reopened any but a success.
func (e Event) Final() bool { return e.Operation != messages.Batch && e.State.Final(e.Operation) }

// String is the subject, and nothing personal.
func (e Event) String() string { return e.Subject }

// About is the event itself: what the outcomes have in common.
func (e Event) About() Event { return e }

func newEvent(subject string, header nats.Header, data []byte) Event {
	s := messages.ParseSubject(subject)
	return Event{Operation: s.Operation, State: s.State, RequestID: s.ID, Subject: subject, Header: header, Data: data}
}

// delivered is an event that a consumer delivers.
func delivered(m jetstream.Msg) (Event, error) {
	e := newEvent(m.Subject(), m.Headers(), m.Data())
	meta, err := m.Metadata()
	if err == nil {
		e.Sequence, e.Time = meta.Sequence.Stream, meta.Timestamp
	}
	return e, err
}

// Outcome is how a request ended, to be told apart by a type switch: Succeeded, Partial, Failed, Uncertain or Erased, or the
// Resolved that may follow an Uncertain.
type Outcome interface{ About() Event }

// Succeeded says that the payer is enrolled, every valid recipient was accepted, the transactions were listed, or the account was
// reported. The body says more (messages.EnrollSucceeded and others).
type Succeeded struct {
	Event
	LeftOut int // addresses of a message that are not valid or suppressed: messages.SendOutcome.Unsent says which
}

// Link is where the payer of an enrollment authorises the mandate, false for another operation. Resolved has none: its answer was
// lost.
func (s Succeeded) Link() (link string, ok bool) {
	var body struct {
		Enrollment struct {
			URL string `json:"url"`
		} `json:"enrollment"`
	}
	if s.Operation != messages.Enroll || s.State != messages.Succeeded || s.Decode(&body) != nil {
		return "", false
	}
	return body.Enrollment.URL, body.Enrollment.URL != ""
}

// Partial says that some recipients of a message were accepted, and that the fate of all is known.
// messages.SendOutcome.Unsent says who got no mail.
type Partial struct {
	Event
	Accepted, Recipients int
	LeftOut              int // as of Succeeded; Recipients are without them
}

// Failed says that it was not done. What a Reason asks for is in docs/use/reference.md.
type Failed struct {
	Event
	Reason        messages.Reason
	Message       string              // for people
	Fields        map[string][]string // what is wrong with which field
	ConflictsWith string              // for ReasonConflict: the request that has the id already
}

// String is the subject and the reason.
func (f Failed) String() string { return f.Subject + ": " + string(f.Reason) }

// Uncertain says that a call was made and nobody knows what came of it. Do not repeat it under another id: Outcomes hands over the
// Resolved that may follow.
type Uncertain struct {
	Event
	Reason  messages.Reason // "" for a message whose batches have different ones
	Message string
}

// Resolved says what an Uncertain request turned out to be. The proof is in the body (messages.EnrollResolved, SendResolved).
type Resolved struct {
	Event
	Became messages.State // Succeeded, Accepted, Partial or Failed
}

// String is the subject and what it turned out to be.
func (r Resolved) String() string { return r.Subject + ": " + string(r.Became) }

// Erased says that a person had the request erased. Its id is not run again. Outcomes does not deliver it.
type Erased struct{ Event }

// Outcome reads a final event. What cannot be read of its body stays empty.
func (e Event) Outcome() Outcome {
	f := readFacts(e)
	switch e.State {
	case messages.Succeeded, messages.Accepted, messages.Listed, messages.Reported:
		return Succeeded{e, f.InvalidCount}
	case messages.Partial:
		return Partial{e, f.Accepted, f.Recipients, f.InvalidCount}
	case messages.Failed:
		return Failed{e, f.Reason, f.Message, f.Fields, f.ConflictsWith}
	case messages.Resolved:
		return Resolved{e, f.Outcome}
	case messages.Erased:
		return Erased{e}
	}
	return Uncertain{e, f.Reason, f.Message}
}

// facts are what the bodies of events say under names that they share.
type facts struct {
	Fingerprint   string              `json:"fingerprint"`
	Outcome       messages.State      `json:"outcome"` // of resolved
	Reason        messages.Reason     `json:"reason"`
	Message       string              `json:"message"`
	Fields        map[string][]string `json:"fields"`
	ConflictsWith string              `json:"conflicts_with"`
	Accepted      int                 `json:"accepted"`
	Recipients    int                 `json:"recipients"`
	InvalidCount  int                 `json:"invalid_count"`
}

func readFacts(e Event) (f facts) {
	_ = e.Decode(&f) // fields of another type stay zero
	return f
}
