package bus

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"errand/pkg/messages"
)

// DeadLetter is why a request ended without success.
type DeadLetter struct {
	RequestID string
	Operation messages.Operation
	Reason    messages.Reason
	Message   string
	Final     uint64 // sequence of the event that ended it
}

// Headers of a dead letter, for those who read it.
const (
	HeaderRequestID = "Errand-Request-Id" // the id under which the request ended
	HeaderReason    = "Errand-Reason"
	HeaderMessage   = "Errand-Message"
)

// HeaderReopened is of a dead letter that a person has published again: the sequence of the
// event that opened its request for that. HeaderRequestID says which one's.
const HeaderReopened = "Errand-Reopened"

// StoreDeadLetter stores the original message of a request on dead.<its subject>: bytes
// unchanged, its own headers but for Nats-* and Errand-* (a copied expectation
// would block the queue for good). The same ending of the same request stored again
// within the stream's duplicate window changes nothing; another ending, of a request
// that was reopened, is a dead letter of its own.
func (p *Publisher) StoreDeadLetter(ctx context.Context, m *nats.Msg, why DeadLetter) error {
	meta, err := m.Metadata()
	if err != nil {
		return fmt.Errorf("bus: dead letter: %w", err)
	}
	d := letter(m, meta, why)
	err = p.Keep(ctx, d)
	if tooLarge(err) { // the servers take less than when the message came: rather without its headers than never
		for name := range own(m.Header) {
			delete(d.Header, name)
		}
		err = p.Keep(ctx, d)
	}
	if err != nil {
		return fmt.Errorf("bus: dead letter: %w", err)
	}
	return nil
}

// letter is the dead letter of m.
func letter(m *nats.Msg, meta *nats.MsgMetadata, why DeadLetter) *nats.Msg {
	d := &nats.Msg{Subject: "dead." + m.Subject, Data: m.Data, Header: own(m.Header)}
	set := func(name, value string) {
		if value != "" {
			d.Header[name] = []string{messages.Cut(value)}
		}
	}
	set("Errand-Msg-Id", m.Header.Get(nats.MsgIdHdr))
	set(HeaderReason, string(why.Reason))
	set(HeaderMessage, why.Message)
	set(HeaderRequestID, why.RequestID)
	set("Errand-Stream", meta.Stream)
	set("Errand-Sequence", strconv.FormatUint(meta.Sequence.Stream, 10))
	set("Errand-Deliveries", strconv.FormatUint(meta.NumDelivered, 10))
	set("Errand-At", messages.Time{Time: time.Now()}.String())
	set(nats.MsgIdHdr, DeadLetterID(why.Operation, why.RequestID, why.Final))
	return d
}

// DeadLetterID is the Nats-Msg-Id of the dead letter that a request left when it ended with
// the event of a sequence.
func DeadLetterID(op messages.Operation, request string, final uint64) string {
	return "dead." + string(op) + "." + request + "." + strconv.FormatUint(final, 10)
}

// maxOwn is how many bytes of its own headers a dead letter keeps: a message has
// at most 64 KiB of them, and ours must fit too.
const maxOwn = 56 << 10

// own are the headers of a message that its dead letter keeps. Those that cannot
// be written again are left out: they came from a client that does not look, and
// a dead letter that is never stored would block the queue.
func own(all nats.Header) nats.Header {
	kept, size := nats.Header{}, 0
	for _, name := range slices.Sorted(maps.Keys(all)) {
		l := strings.ToLower(name)
		if name == "" || strings.HasPrefix(l, "nats-") || strings.HasPrefix(l, "errand-") || strings.ContainsFunc(name, notInName) {
			continue
		}
		line := 0
		for _, value := range all[name] {
			line += len(name) + len(value) + len(": \r\n")
		}
		if size+line <= maxOwn {
			kept[name] = all[name]
			size += line
		}
	}
	return kept
}

// notInName reports what nats.go refuses to write in a header's name.
func notInName(r rune) bool {
	return r <= ' ' || r > '~' || strings.ContainsRune(`"()/,:;<=>?@[\]{}`, r)
}
