package e2e

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
)

// quiet keeps what the server refuses out of the test's output.
var quiet = nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})

// A person finds out nothing of what another listens to, and can publish nothing to it: what
// the other takes for the server's answer is the server's.
func TestAPersonCannotAnswerAnother(t *testing.T) {
	t.Parallel()
	w := newTarget(t, withBen(natsConfig(t)))
	ann, _ := connectAs(t, w.n.URL, "ann", quiet)
	ben, _ := connectAs(t, w.n.URL, "ben")
	answers, err := ben.SubscribeSync(ben.NewInbox())
	w.must(answers, err)
	w.must(nil, ben.FlushWithContext(patiently(t)))
	for _, subject := range []string{"$SYS.REQ.ACCOUNT.PING.CONNZ", "$SYS.REQ.SERVER.PING.CONNZ", answers.Subject} {
		err := (act{publish: subject}).try(ann)
		errorIf(t, !errors.Is(err, nats.ErrPermissionViolation), "ann publishes to %s: %v", subject, err)
	}
	w.must(nil, ben.FlushWithContext(patiently(t)))
	if n, _, err := answers.Pending(); n > 0 || err != nil {
		t.Errorf("ben gets %d answers of ann's, and %v", n, err)
	}
}

// The server does not replace a reply subject of acknowledgments where it delivers a message
// of an account's own stream to an import, and takes an answer without a body for one: so
// nobody who can name a stream and its consumer like a queue may ask what is answered so.
func TestAnAnswerAcknowledgesNoRequest(t *testing.T) {
	t.Parallel()
	w := newTarget(t, natsConfig(t))
	const room = 100 // more than there are subjects
	for i := range room {
		w.must(w.js.Publish(t.Context(), "mail.send.requested", fmt.Appendf(nil, `{"request_id":"%d"}`, i)))
	}
	queue, err := w.js.Consumer(t.Context(), bus.MailRequests, "mail-send")
	w.must(queue, err)
	taken, err := queue.Fetch(room)
	w.must(taken, err)
	for range taken.Messages() { // a program is at it
	}
	for _, user := range []string{"service", "subscriber"} {
		w.serve(user)
		nc, js := connectAs(t, w.n.URL, user, quiet)
		w.must(js.CreateStream(t.Context(), jetstream.StreamConfig{Name: bus.MailRequests, Subjects: []string{"own"}}))
		for range room {
			w.must(js.Publish(t.Context(), "own", nil))
		}
		own, err := js.CreateConsumer(t.Context(), bus.MailRequests, jetstream.ConsumerConfig{Durable: "mail-send",
			AckPolicy: jetstream.AckExplicitPolicy})
		w.must(own, err)
		subjects := append(ours(), "ERRAND.API.DIRECT.GET.OBJ_lists.none", "$JS.API.DIRECT.GET.OBJ_lists.none")
		for _, stream := range append([]string{"OBJ_lists"}, bus.Readable...) {
			subjects = append(subjects, "ERRAND.API.DIRECT.GET."+stream, "ERRAND.API.CONSUMER.RESET."+stream+"."+user,
				"$JS.FC."+stream+"."+user+".x")
		}
		for _, subject := range subjects {
			w.must(nil, nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT.MAIL_REQUESTS.mail-send", subject, []byte(`{"batch":1,"no_wait":true}`)))
		}
		w.must(own.Next()) // it is their turn before
		for range 3 {
			w.must(nil, nc.FlushWithContext(patiently(t)))
			w.must(w.js.AccountInfo(t.Context()))
		}
		if info, err := queue.Info(t.Context()); err != nil || info.NumAckPending != room {
			t.Errorf("%s: %v, and %d of %d requests wait for their acknowledgment", user, err, info.NumAckPending, room)
		}
	}
}

// A stream that is purged up to a sequence far beyond its last one keeps nats-server from
// starting again. Who only publishes has no way to do that.
func TestAProducerPurgesNothing(t *testing.T) {
	t.Parallel()
	w := newTarget(t, natsConfig(t))
	nc, _ := connectAs(t, w.n.URL, "producer")
	for _, stream := range []string{"OBJ_lists", bus.MailRequests, bus.MandateEvents} {
		m, err := nc.Request("$JS.API.STREAM.PURGE."+stream, []byte(`{"seq":9223372036854775808}`), 10*time.Second)
		errorIf(t, !errors.Is(err, nats.ErrNoResponders), "%s: %v %v", stream, m, err)
	}
}

// An account other than errand's takes no more than its share of a server's connections.
func TestAnAccountHasAShareOfTheConnections(t *testing.T) {
	t.Parallel()
	n := securedServer(t)
	for _, user := range []string{"producer", "service", "subscriber", "ann"} {
		refused := ""
		for i := 0; i <= 256 && refused == ""; i++ {
			c, err := net.Dial("tcp", strings.TrimPrefix(n.URL, "nats://"))
			must(t, err)
			t.Cleanup(func() { _ = c.Close() })
			_ = c.SetDeadline(time.Now().Add(30 * time.Second))
			_, _ = fmt.Fprintf(c, "CONNECT {\"verbose\":false,\"user\":%q,\"pass\":%q}\r\nPING\r\n", user, password(user))
			said, buffer := "", make([]byte, 4096)
			for !strings.Contains(said, "PONG") && !strings.Contains(said, "-ERR") {
				k, err := c.Read(buffer)
				must(t, err)
				said += string(buffer[:k])
			}
			if _, why, found := strings.Cut(said, "-ERR"); found {
				refused = why
			}
			errorIf(t, refused != "" && i != 256, "%s is refused the connection %d: %s", user, i+1, refused)
		}
		errorIf(t, !strings.Contains(refused, "maximum account active connections exceeded"), "%s has 257 connections: %q", user, refused)
	}
	nc, _ := connectAs(t, n.URL, "mail-consumer")
	noError(t, nc.FlushWithContext(patiently(t)))
}
