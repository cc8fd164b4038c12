package e2e

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/devkit"
	"errand/internal/devkit/devtest"
)

// A list of recipients goes from the producer to the mail consumer, and its outcome to a
// durable consumer of the subscriber's, with nobody's rights but their own.
func TestProducerAndSubscriberNeedOnlyTheirOwnRights(t *testing.T) {
	in := install(t)
	_, provisioner := connectAs(t, in.nats.URL, "provisioner")
	if _, err := provisioner.CreateObjectStore(t.Context(), jetstream.ObjectStoreConfig{Bucket: "lists"}); err != nil {
		t.Fatal(err)
	}
	bucket, err := in.producer.ObjectStore(t.Context(), "lists")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bucket.PutString(t.Context(), "all", "of-before@example.test\n"); err != nil {
		t.Fatal(err)
	}
	list, err := bucket.PutString(t.Context(), "all", "a@example.test\nb@example.test\nc@example.test\n")
	if err != nil {
		t.Fatal(err)
	}
	body := message("listed", 0)
	delete(body, "to")
	body["to_object"] = map[string]string{"bucket": "lists", "name": "all", "digest": list.Digest}
	in.publish("mail.send.requested", body)
	in.start("mail-consumer")

	mine, err := in.subscriber.CreateOrUpdateConsumer(t.Context(), bus.MailEvents, jetstream.ConsumerConfig{
		Durable: "outcomes", FilterSubject: "mail.send.accepted.*", AckPolicy: jetstream.AckExplicitPolicy})
	if err != nil {
		t.Fatal(err)
	}
	m, err := mine.Next(jetstream.FetchMaxWait(30 * time.Second))
	if err != nil {
		t.Fatalf("%v\n%s", err, in.lastOutput())
	}
	if err := m.DoubleAck(t.Context()); err != nil || !strings.Contains(string(m.Data()), `"accepted":3`) {
		t.Errorf("acknowledged with %v: %s", err, m.Data())
	}
}

// hashed is the poller's password as `nats server passwd` writes one.
const hashed = "$2a$04$PdE7IZl7x83vRezS64C8Pewb4JyQrkitPIpLioHrSPKNeYEgKbdP2"

// The file works as it is shipped: included, with passwords and hashes of them from the
// environment, and not at all when one of them is forgotten.
func TestTheShippedConfigurationIsIncludedAndReadsTheEnvironment(t *testing.T) {
	shipped, err := os.ReadFile("../../deploy/nats/errand.conf")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "nats.conf")
	for name, text := range map[string]string{file: fmt.Sprintf("listen: 127.0.0.1:-1\njetstream { store_dir: %q }\ninclude errand.conf\n", dir),
		filepath.Join(dir, "errand.conf"): string(shipped)} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, user := range users {
		if _, err := server.ProcessConfigFile(file); err == nil {
			t.Errorf("it is taken without the password of %s", user)
		}
		t.Setenv(variable(user), password(user))
	}
	t.Setenv(variable("log-poller"), hashed)
	options, err := server.ProcessConfigFile(file)
	if err != nil {
		t.Fatal(err)
	}
	options.NoLog, options.NoSigs = true, true
	s, err := server.NewServer(options)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(s.Shutdown)
	for _, user := range users {
		nc, _ := connectAs(t, s.ClientURL(), user)
		if err := nc.FlushTimeout(10 * time.Second); err != nil {
			t.Errorf("%s: %v", user, err)
		}
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
		if !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("%s: %v", user, err)
		}
	}
}

// block is what is between the fences in text that begin with a line.
func block(t *testing.T, text, line string) string {
	t.Helper()
	_, rest, found := strings.Cut(text, "```\n# "+line+"\n")
	inside, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatalf("the documentation has no block %q", line)
	}
	return inside
}

// A producer in an account of its own asks like any other, but cannot have the server
// write an event with its answer, as one in the same account can.
func TestAProducerOfAnotherAccountForgesNoEvent(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../deploy/nats/README.md")
	if err != nil {
		t.Fatal(err)
	}
	config := `OUTSIDER_PASSWORD: "` + password("outsider") + "\"\n" + natsConfig(t)
	config = strings.Replace(config, "    jetstream: enabled\n", "    jetstream: enabled\n"+block(t, string(readme), "Into the account ERRAND"), 1)
	config = strings.Replace(config, "\naccounts {\n", "\naccounts {\n"+block(t, string(readme), "Beside the account ERRAND"), 1)
	n, err := devkit.Configured(t.TempDir(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	admin := connect(t, n.URL)
	if err := devtest.Provision(t.Context(), admin); err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(admin)
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range []string{"outsider", "producer"} {
		nc, asks := connectAs(t, n.URL, user)
		if err := nc.PublishRequest("mandate.enroll.requested", "mandate.enroll.succeeded."+user, []byte("{}")); err != nil {
			t.Fatal(err)
		}
		if _, err := asks.Publish(t.Context(), "mandate.enroll.requested", []byte("{}")); err != nil { // answered after the first
			t.Errorf("%s cannot ask: %v", user, err)
		}
	}
	s, err := js.Stream(t.Context(), bus.MandateEvents)
	if err != nil {
		t.Fatal(err)
	}
	var events jetstream.StreamState
	for end := time.Now().Add(10 * time.Second); events.Msgs == 0 && time.Now().Before(end); runtime.Gosched() {
		info, err := s.Info(t.Context(), jetstream.WithSubjectFilter(">"))
		if err != nil {
			t.Fatal(err)
		}
		events = info.State
	}
	if want := map[string]uint64{"mandate.enroll.succeeded.producer": 1}; !maps.Equal(events.Subjects, want) {
		t.Errorf("events: %v, want %v", events.Subjects, want)
	}
}
