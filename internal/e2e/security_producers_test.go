package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
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

// reader makes a reader's copies as errand provision and errand mirror do, each with the rights of its own user.
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

// The file works as it is shipped: included, with passwords and hashes of them from the
// environment, and not at all when one of them is forgotten.
func TestTheShippedConfigurationIsIncludedAndReadsTheEnvironment(t *testing.T) {
	shipped, err := os.ReadFile("../../deploy/nats/errand.conf")
	must(t, err)
	dir := t.TempDir()
	file := filepath.Join(dir, "nats.conf")
	for name, text := range map[string]string{file: fmt.Sprintf("listen: 127.0.0.1:-1\njetstream { store_dir: %q }\ninclude errand.conf\n",
		dir),
		filepath.Join(dir, "errand.conf"): string(shipped)} {
		must(t, os.WriteFile(name, []byte(text), 0o600))
	}
	for _, user := range users {
		_, err := server.ProcessConfigFile(file)
		errorIf(t, err == nil, "it is taken without the password of %s", user)
		t.Setenv(variable(user), password(user))
	}
	t.Setenv(variable("log-poller"), hashed)
	options, err := server.ProcessConfigFile(file)
	must(t, err)
	options.NoLog, options.NoSigs = true, true
	s, err := server.NewServer(options)
	must(t, err)
	s.Start()
	t.Cleanup(s.Shutdown)
	for _, user := range users {
		nc, _ := connectAs(t, s.ClientURL(), user)
		err := nc.FlushWithContext(patiently(t))
		errorIf(t, err != nil, "%s: %v", user, err)
	}
	if nc, err := nats.Connect(s.ClientURL()); err == nil {
		nc.Close()
		t.Error("somebody without a name is authorized")
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
