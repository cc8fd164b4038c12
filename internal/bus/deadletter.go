package bus

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/pkg/messages"
)

// DeadLetter is why a request ended without success.
type DeadLetter struct {
	RequestID string
	Operation messages.Operation
	Reason    messages.Reason
	Message   string
}

// Bury stores the original message of a request on dead.<its subject>: bytes
// unchanged, its own headers but for Nats-* and Errand-* (a copied expectation
// would block the queue for good). Burying the same request again within the
// stream's duplicate window changes nothing.
func (p *Publisher) Bury(ctx context.Context, m jetstream.Msg, why DeadLetter) error {
	meta, err := m.Metadata()
	if err != nil {
		return fmt.Errorf("bus: dead letter: %w", err)
	}
	d := &nats.Msg{Subject: "dead." + m.Subject(), Data: m.Data(), Header: nats.Header{}}
	for name, values := range m.Headers() {
		if l := strings.ToLower(name); !strings.HasPrefix(l, "nats-") && !strings.HasPrefix(l, "errand-") {
			d.Header[name] = values
		}
	}
	set := func(name, value string) {
		if value != "" {
			d.Header[name] = []string{messages.Cut(value)}
		}
	}
	set("Errand-Msg-Id", m.Headers().Get(nats.MsgIdHdr))
	set("Errand-Reason", string(why.Reason))
	set("Errand-Message", why.Message)
	set("Errand-Request-Id", why.RequestID)
	set("Errand-Stream", meta.Stream)
	set("Errand-Sequence", strconv.FormatUint(meta.Sequence.Stream, 10))
	set("Errand-Deliveries", strconv.FormatUint(meta.NumDelivered, 10))
	set("Errand-At", messages.Time{Time: time.Now()}.String())
	set(nats.MsgIdHdr, "dead."+string(why.Operation)+"."+why.RequestID)
	if err := p.Keep(ctx, d); err != nil {
		return fmt.Errorf("bus: dead letter: %w", err)
	}
	return nil
}
