package sink

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"errand/internal/bus"
	"errand/internal/sandbox/devkit/devtest"
	"errand/pkg/messages"
)

// In a cluster the answer that a write is refused, since another is in flight, comes
// before the one that this other is stored.
func TestARefusalThatOvertakesSaysWhyThePageEnded(t *testing.T) {
	a := &acks{prefix: "in."}
	p := a.begin(3)
	a.receive(&nats.Msg{Subject: a.reply(p, 1), Data: []byte(`{"error":{"code":400,"err_code":10164}}`)})
	if stored, err := a.wait(t.Context(), p); stored != 0 || !inFlight(err) {
		t.Errorf("got %d, %v; want 0 and the refusal", stored, err)
	}
	if len(a.pages) != 0 {
		t.Error("the page is kept")
	}
}

// What is behind a write that could not be sent is never answered.
func TestAPageThatCannotBeSentIsNotWaitedFor(t *testing.T) {
	a, why := &acks{prefix: "in."}, errors.New("it is too large")
	p := a.begin(3)
	a.abort(p, 1, why)
	a.receive(&nats.Msg{Subject: a.reply(p, 0), Data: []byte(`{"stream":"MAIL_DELIVERIES","seq":7}`)})
	select {
	case <-p.done:
	default:
		t.Error("it is waited for more")
	}
	if stored, err := a.wait(t.Context(), p); stored != 1 || !errors.Is(err, why) {
		t.Errorf("got %d, %v; want 1 and %v", stored, err, why)
	}
}

// The usual answer is taken for what it is at once: to read them all as JSON takes as long
// as half of the encoding of the events.
func TestTheServersUsualAnswerIsRecognized(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	answer, err := nc.Request(messages.Delivery.Subject(messages.Delivered, messages.Unmatched), nil, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	a, err := newAcks(nc, bus.MailDeliveries)
	if err != nil {
		t.Fatal(err)
	}
	if a.stored(answer.Data) != 1 {
		t.Errorf("%s is not recognized", answer.Data)
	}
	for _, other := range []string{"", `{"stream":"` + bus.MailDeliveries + `","seq":}`, `{"stream":"` + bus.MailDeliveries + `","seq":0}`,
		`{"stream":"` + bus.MailDeliveries + `","seq":7,"duplicate":true}`, `{"stream":"OTHER","seq":7}`, `{"error":{"code":400,"err_code":10071}}`} {
		if a.stored([]byte(other)) != 0 {
			t.Errorf("%s is taken for the usual answer", other)
		}
	}
}
