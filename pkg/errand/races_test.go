package errand_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/sandbox/devkit/devtest"
	"errand/pkg/errand"
	"errand/pkg/messages"
)

func TestAnEventUnderThePositionThatIsOfOtherContentsIsNoOutcome(t *testing.T) {
	w := newWorld(t)
	// The queue was made again since, and counts from 1.
	w.store("mail.send.failed.MAIL_REQUESTS-1",
		`{"request_id":"MAIL_REQUESTS-1","fingerprint":"of another","reason":"conflict","conflicts_with":"other"}`)
	r := w.publish(letter("mine", "new"))
	if o, err := w.wait(r, 300*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the outcome is %v, %v, want none: it is another request's", o, err)
	}
	w.store("mail.send.accepted.mine", own(r, ""))
	w.want(r, "mail.send.accepted.mine")
}

// late is a JetStream in which another program makes a consumer right after it was looked for.
type late struct {
	jetstream.JetStream
	other func()
}

func (l late) Consumer(ctx context.Context, stream, name string) (jetstream.Consumer, error) {
	c, err := l.JetStream.Consumer(ctx, stream, name)
	if l.other != nil && errors.Is(err, jetstream.ErrConsumerNotFound) {
		l.other()
	}
	return c, err
}

func TestTwoThatMakeTheSameConsumerAtOnceShareIt(t *testing.T) {
	w := newWorld(t)
	since := time.Now().Add(-time.Hour)
	second := errand.New(late{w.js, func() {
		if _, err := w.client.Outcomes(t.Context(), "shop", messages.Send, since.Add(time.Second)); err != nil {
			t.Error(err)
		}
	}})
	if _, err := second.Outcomes(t.Context(), "shop", messages.Send, since); err != nil {
		t.Error(err)
	}
}

func TestARequestOfWhichAnotherCopyIsBeingStoredMayBeStored(t *testing.T) {
	t.Parallel()
	n := devtest.Server(t)
	nc, err := nats.Connect(n.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if _, err := nc.Subscribe("mail.send.requested", func(m *nats.Msg) {
		_ = m.Respond([]byte(`{"type":"io.nats.jetstream.api.v1.pub_ack_response","error":{"code":409,"err_code":10158,"description":"duplicate message id is in process"},"stream":"MAIL_REQUESTS","seq":0}`))
	}); err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := errand.New(js).Publish(t.Context(), letter("a", "x")); !errors.Is(err, errand.ErrNoAck) {
		t.Errorf("got %v, want ErrNoAck: the first copy may be stored", err)
	}
}
