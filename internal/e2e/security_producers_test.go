package e2e

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/sandbox/devkit/inshort"
)

// A list of recipients goes from a producer to the mail consumer. A service in an account of
// its own publishes a request, and has the outcomes from its own copy of the events, over a
// durable consumer that nobody else can delete. All with nobody's rights but their own.
func TestProducerAndServiceNeedOnlyTheirOwnRights(t *testing.T) {
	in := install(t)
	pnc, provisioner := connectAs(t, in.nats.URL, "provisioner")
	_, err := provisioner.CreateObjectStore(t.Context(), jetstream.ObjectStoreConfig{Bucket: "lists"})
	must(t, err)
	bucket, err := in.producer.ObjectStore(t.Context(), "lists")
	must(t, err)
	_, err = bucket.PutString(t.Context(), "all", "of-before@example.test\n")
	must(t, err)
	list, err := bucket.PutString(t.Context(), "all", "a@example.test\nb@example.test\nc@example.test\n")
	must(t, err)
	body := message("listed", 0)
	delete(body, "to")
	body["to_object"] = map[string]string{"bucket": "lists", "name": "all", "digest": list.Digest}
	in.publish("mail.send.requested", body)
	in.start("mail-consumer")

	js := in.reader(pnc, "service")
	if _, err := js.Publish(t.Context(), "mail.send.requested",
		[]byte(`{"request_id":"own","to":"d@example.test","subject":"s","content":"c"}`)); err != nil {
		t.Fatal(err)
	}
	outcomes, err := js.CreateOrUpdateConsumer(t.Context(), bus.MailEvents, jetstream.ConsumerConfig{
		Durable: "billing", FilterSubject: "mail.send.accepted.*", AckPolicy: jetstream.AckExplicitPolicy})
	must(t, err)
	read := ""
	for range 2 {
		m, err := outcomes.Next(jetstream.FetchMaxWait(time.Minute))
		if err != nil {
			t.Fatalf("%v\n%s", err, in.lastOutput())
		}
		noError(t, m.DoubleAck(t.Context()))
		read += string(m.Data())
	}
	errorIf(t, !strings.Contains(read, `"accepted":3`) || !strings.Contains(read, `"accepted":1`), "the service reads %s", read)
}

// reader makes a reader's copies as errand provision and errand mirror do, each with the rights of the command's user.
func (in *installation) reader(provisioner *nats.Conn, name string) jetstream.JetStream {
	in.t.Helper()
	apply := func(plan []bus.Change, err error) {
		in.t.Helper()
		if err == nil {
			err = bus.Apply(in.t.Context(), plan, false, func(bus.Change) {})
		}
		must(in.t, err)
	}
	js, err := jetstream.New(provisioner)
	must(in.t, err)
	apply(bus.PlanReaders(in.t.Context(), js, []string{name}))
	nc, own := connectAs(in.t, in.nats.URL, name)
	apply(bus.PlanCopies(in.t.Context(), nc, own, name, bus.Readable, bus.Limits{}))
	return own
}

// hashed is the poller's password as `nats server passwd` writes one.
const hashed = "$2a$04$PdE7IZl7x83vRezS64C8Pewb4JyQrkitPIpLioHrSPKNeYEgKbdP2"

// The files work as they are shipped: included, with passwords and hashes of them from the environment, and not at all when one
// of them is forgotten. Without the file of the users of an emergency, nobody is one of them.
func TestTheShippedConfigurationIsIncludedAndReadsTheEnvironment(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "nats.conf")
	ship := func(name string) {
		text, err := os.ReadFile(filepath.Join("../../deploy/nats", name))
		must(t, err)
		must(t, os.WriteFile(filepath.Join(dir, filepath.Base(name)), text, 0o600))
	}
	must(t, os.WriteFile(file, fmt.Appendf(nil, "listen: 127.0.0.1:-1\njetstream { store_dir: %q }\ninclude errand.conf\n", dir), 0o600))
	ship("errand.conf")
	ship("emergency/emergency.conf")
	for _, user := range users {
		_, err := server.ProcessConfigFile(file)
		errorIf(t, err == nil, "it is taken without the password of %s", user)
		t.Setenv(variable(user), password(user))
	}
	t.Setenv(variable("log-poller"), hashed)
	run := func() *server.Server {
		options, err := server.ProcessConfigFile(file)
		must(t, err)
		options.NoLog, options.NoSigs = true, true
		s, err := server.NewServer(options)
		must(t, err)
		s.Start()
		t.Cleanup(s.Shutdown)
		return s
	}
	s := run()
	for _, user := range users {
		nc, _ := connectAs(t, s.ClientURL(), user)
		err := nc.FlushWithContext(patiently(t))
		errorIf(t, err != nil, "%s: %v", user, err)
	}
	if nc, err := nats.Connect(s.ClientURL()); err == nil {
		nc.Close()
		t.Error("somebody without a name is authorized")
	}
	s.Shutdown()

	ship("emergency.conf")
	s = run()
	for _, user := range users {
		nc, err := nats.Connect(s.ClientURL(), nats.UserInfo(user, password(user)))
		if err == nil {
			nc.Close()
		}
		errorIf(t, errors.Is(err, nats.ErrAuthorization) != slices.Contains([]string{"admin", "system", "eraser"}, user), "%s: %v", user, err)
	}
}

func TestAWrongPasswordIsNobody(t *testing.T) {
	t.Parallel()
	n := securedServer(t)
	for _, user := range append([]string{"nobody", "admin"}, users...) {
		nc, err := nats.Connect(n.URL, nats.UserInfo(user, "wrong"))
		if err == nil {
			nc.Close()
		}
		errorIf(t, !errors.Is(err, nats.ErrAuthorization), "%s: %v", user, err)
	}
}

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
	// Under the race detector a password takes a third of a second to check.
	for _, user := range inshort.Choose(t, []string{"producer", "service", "subscriber", "ann"}, []string{"service"}) {
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
