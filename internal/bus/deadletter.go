package bus

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"errand/internal/wire"
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

// Headers of a dead letter, for its readers.
const (
	HeaderRequestID = "Errand-Request-Id" // the id under which the request ended
	HeaderReason    = "Errand-Reason"
	HeaderMessage   = "Errand-Message"
)

// HeaderReopened marks a dead letter that a person published again: the sequence of HeaderRequestID's reopened event.
const HeaderReopened = "Errand-Reopened"

// StoreDeadLetter stores the request as it came on dead.<its subject>: the same bytes, and its headers without
// Nats-* and Errand-* (a copied expectation would block the queue for ever). The same ending of a request, stored again
// within the stream's duplicate window, changes nothing; each ending of a reopened request is a separate dead letter. It
// is tried once: a request that waits for its dead letter waits in its queue, and leaves its place to others.
func (p *Publisher) StoreDeadLetter(ctx context.Context, r *Request, why DeadLetter) error {
	d := letter(r, why)
	_, err := p.Publish(ctx, d)
	if tooLarge(err) { // the limit was lowered since the message came: better without its headers than never
		for name := range OwnHeaders(r.Header) {
			delete(d.Header, name)
		}
		_, err = p.Publish(ctx, d)
	}
	if err != nil {
		return fmt.Errorf("bus: dead letter: %w", err)
	}
	return nil
}

func letter(r *Request, why DeadLetter) *nats.Msg {
	d := &nats.Msg{Subject: "dead." + r.Subject, Data: r.Data, Header: OwnHeaders(r.Header)}
	set := func(name, value string) {
		if value != "" {
			d.Header[name] = []string{wire.Cut(value)}
		}
	}
	set(HeaderMsgID, cmp.Or(r.Header.Get(nats.MsgIdHdr), r.Header.Get(HeaderMsgID)))
	set(HeaderReason, string(why.Reason))
	set(HeaderMessage, why.Message)
	set(HeaderRequestID, why.RequestID)
	set("Errand-Stream", r.Stream)
	set("Errand-Sequence", strconv.FormatUint(r.Sequence, 10))
	set("Errand-Deliveries", strconv.FormatUint(r.Delivered, 10))
	set("Errand-At", messages.Time{Time: time.Now()}.String())
	set(nats.MsgIdHdr, DeadLetterID(why.Operation, why.RequestID, why.Final))
	return d
}

// DeadLetterID is the Nats-Msg-Id of the dead letter of a request that ended with the event of a sequence.
func DeadLetterID(op messages.Operation, request string, final uint64) string {
	return deadLetterPrefix(op, request) + strconv.FormatUint(final, 10)
}

func deadLetterPrefix(op messages.Operation, request string) string {
	return "dead." + string(op) + "." + request + "."
}

// EndingOf is the sequence of the event that a request's dead letter is about, 0 if it does not say it. A repeat of the request leaves
// another one about the same event.
func EndingOf(op messages.Operation, request string, letter map[string][]string) uint64 {
	text, _ := strings.CutPrefix(nats.Header(letter).Get(nats.MsgIdHdr), deadLetterPrefix(op, request))
	final, _ := strconv.ParseUint(text, 10, 64)
	return final
}

// DeadOf matches the dead letters of an operation, of all lanes.
func DeadOf(op messages.Operation) string { return "dead." + string(op) + ".>" }

// maxOwn is how many bytes of the message's headers a dead letter keeps: of the 64 KiB at most, errand's take some.
const maxOwn = 56 << 10

// OwnHeaders are the headers of a message that are kept where it is stored again. Those that a client should not have written are left out:
// nats.go would refuse them, and a dead letter that is never stored would block the queue.
func OwnHeaders(all nats.Header) nats.Header {
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
