package bus_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/sandbox/devkit"
	"errand/internal/sandbox/devkit/devtest"
	"errand/pkg/messages"
)

func opened(t *testing.T, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// planned returns the plan as it is shown.
func planned(t *testing.T, js jetstream.JetStream, l bus.Limits) []string {
	t.Helper()
	var shown []string
	for _, c := range planOf(t, js, l) {
		shown = append(shown, c.String())
	}
	return shown
}

func planOf(t *testing.T, js jetstream.JetStream, l bus.Limits) []bus.Change {
	t.Helper()
	l.MaxPayload = js.Conn().MaxPayload()
	plan, err := bus.Plan(t.Context(), js, l)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func apply(t *testing.T, js jetstream.JetStream, l bus.Limits, force bool) {
	t.Helper()
	if err := bus.Apply(t.Context(), planOf(t, js, l), force, func(bus.Change) {}); err != nil {
		t.Fatal(err)
	}
}

// alter changes a stream as an operator does.
func alter(t *testing.T, js jetstream.JetStream, stream string, how func(*jetstream.StreamConfig)) {
	t.Helper()
	s, err := js.Stream(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	config := s.CachedInfo().Config
	how(&config)
	if _, err := js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
}

func TestProvisionIsIdempotentAndRefusesToDestroy(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	js := opened(t, nc)
	if plan := planned(t, js, bus.Limits{}); len(plan) != 0 {
		t.Fatalf("a second time: %q", plan)
	}
	shorter := bus.Limits{MaxAge: time.Hour}
	plan := planOf(t, js, shorter)
	if len(plan) != 5 { // events, callbacks, deliveries, dead letters
		t.Fatalf("shorter age: %v", plan)
	}
	if err := bus.Apply(t.Context(), plan, false, func(bus.Change) {}); err == nil {
		t.Fatal("applied without force")
	}
	if again := planOf(t, js, shorter); len(again) != 5 {
		t.Fatalf("something was changed: %v", again)
	}
	apply(t, js, shorter, true)
	if again := planned(t, js, shorter); len(again) != 0 {
		t.Fatalf("after force: %q", again)
	}
}

// Whatever was chosen once, or set by hand, stays until another choice is made.
func TestLimitsThatAreLeftOutStayWhatTheyAre(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	js := opened(t, nc)
	apply(t, js, bus.Limits{MaxAge: 90 * 24 * time.Hour, AckWait: 45 * time.Second, MaxBytes: 1 << 30}, false)
	alter(t, js, bus.MailDeliveries, func(c *jetstream.StreamConfig) { c.MaxAge, c.Description = 0, "by hand" })
	if plan := planned(t, js, bus.Limits{}); len(plan) != 0 {
		t.Errorf("nothing chosen: %q", plan)
	}
	want := []string{"~ consumer mandate-enroll\n    AckWait: 45s -> 1m0s", "~ consumer mandate-transactions\n    AckWait: 45s -> 1m0s",
		"~ consumer mail-send\n    AckWait: 45s -> 1m0s", "~ consumer mail-account\n    AckWait: 45s -> 1m0s",
		"~ consumer mandate-scheduled\n    AckWait: 45s -> 1m0s", "~ consumer mail-scheduled\n    AckWait: 45s -> 1m0s"}
	if diff := gocmp.Diff(want, planned(t, js, bus.Limits{AckWait: time.Minute})); diff != "" {
		t.Errorf("one chosen (-want +got):\n%s", diff)
	}
	plan := planned(t, js, bus.Limits{MaxBytes: bus.Unlimited})
	if len(plan) != 7 || !strings.Contains(plan[0], "MaxBytes: 1073741824 -> -1") {
		t.Errorf("no limit chosen: %q", plan)
	}
}

// A person who lists streams and consumers with another tool reads what they are for.
func TestEverythingHasADescription(t *testing.T) {
	for _, s := range bus.Streams(bus.Limits{}) {
		if s.Description == "" {
			t.Errorf("stream %s has none", s.Name)
		}
	}
	for _, q := range bus.Queues() {
		if q.Config(bus.Limits{}).Description == "" {
			t.Errorf("consumer %s has none", q.Name)
		}
	}
	_, nc := devtest.Provisioned(t)
	js := opened(t, nc)
	alter(t, js, bus.MailDeliveries, func(c *jetstream.StreamConfig) { c.Description = "" })
	alter(t, js, bus.MailEvents, func(c *jetstream.StreamConfig) { c.Description = "by hand" })
	plan := planned(t, js, bus.Limits{})
	if len(plan) != 1 || !strings.Contains(plan[0], "MAIL_DELIVERIES\n    Description: \"\" -> \"errand: ") {
		t.Errorf("one is missing and one is somebody's own: %q", plan)
	}
	apply(t, js, bus.Limits{}, false)
	if plan := planned(t, js, bus.Limits{}); len(plan) != 0 {
		t.Errorf("again: %q", plan)
	}
}

// What is gone is made like what is there, and what is there is not touched for it.
func TestWhatIsMadeTakesAfterWhatIsThere(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	js := opened(t, nc)
	apply(t, js, bus.Limits{MaxAge: 90 * 24 * time.Hour, AckWait: 45 * time.Second}, false)
	if err := js.DeleteStream(t.Context(), bus.MailEvents); err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteConsumer(t.Context(), bus.MailRequests, "mail-send"); err != nil {
		t.Fatal(err)
	}
	plan := planned(t, js, bus.Limits{})
	if len(plan) != 3 || !strings.HasPrefix(plan[0], "+ stream MAIL_EVENTS\n") || !strings.Contains(plan[0], "\n    MaxAge: 2160h0m0s") ||
		plan[1] != "+ note of the secret of recipients' keys" ||
		!strings.HasPrefix(plan[2], "+ consumer mail-send\n") || !strings.Contains(plan[2], "\n    AckWait: 45s") {
		t.Errorf("planned %q", plan)
	}
}

// A dead letter must not outlive the history that knows it, nor go before it.
func TestDeadLettersAreKeptAsLongAsTheEvents(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	js := opened(t, nc)
	for _, c := range []struct {
		have time.Duration
		want string
	}{
		{90 * 24 * time.Hour, "~ stream DEAD_LETTERS  (destructive)\n    MaxAge: 2160h0m0s -> 720h0m0s"},
		{0, "~ stream DEAD_LETTERS  (destructive)\n    MaxAge: 0s -> 720h0m0s"},
		{24 * time.Hour, "~ stream DEAD_LETTERS\n    MaxAge: 24h0m0s -> 720h0m0s"},
	} {
		alter(t, js, bus.DeadLetters, func(s *jetstream.StreamConfig) { s.MaxAge = c.have })
		if diff := gocmp.Diff([]string{c.want}, planned(t, js, bus.Limits{})); diff != "" {
			t.Errorf("kept for %v (-want +got):\n%s", c.have, diff)
		}
	}
	alter(t, js, bus.DeadLetters, func(s *jetstream.StreamConfig) { s.MaxAge = 30 * 24 * time.Hour })
	alter(t, js, bus.MailEvents, func(s *jetstream.StreamConfig) { s.MaxAge = 10 * 24 * time.Hour })
	want := []string{"~ stream DEAD_LETTERS  (destructive)\n    MaxAge: 720h0m0s -> 240h0m0s"}
	if diff := gocmp.Diff(want, planned(t, js, bus.Limits{})); diff != "" {
		t.Errorf("one stream of events keeps less (-want +got):\n%s", diff)
	}
}

// No stream that others than the programs write to has anything that would let one of its writers wipe or forge. What is stored of
// a person can be erased by subject, everywhere; what people did cannot.
func TestOnlyStreamsOfScheduledRequestsHaveSchedulesAndEachCanBePurged(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	for _, stream := range bus.Streams(bus.Limits{MaxPayload: nc.MaxPayload()}) {
		_, s := streamOf(t, nc, stream.Name)
		c := s.CachedInfo().Config
		scheduled := c.Name == bus.MandateScheduled || c.Name == bus.MailScheduled
		if c.AllowMsgSchedules != scheduled || c.AllowMsgTTL || c.AllowRollup != scheduled || c.AllowMsgCounter {
			t.Errorf("%s: schedules %v, TTLs %v, rollup %v, counters %v", c.Name,
				c.AllowMsgSchedules, c.AllowMsgTTL, c.AllowRollup, c.AllowMsgCounter)
		}
		forever := c.Name == bus.Audit || c.Name == bus.Keys
		want := c.Name == bus.MandateEvents || c.Name == bus.MandateCallbacks || c.Name == bus.MailEvents || c.Name == bus.Suppressions || forever
		if c.DenyDelete != want || c.DenyPurge != forever {
			t.Errorf("%s: denies deleting %v, want %v; denies purging %v", c.Name, c.DenyDelete, want, c.DenyPurge)
		}
		if err := s.Purge(t.Context(), jetstream.WithPurgeSubject("*.*.*.somebody")); (err != nil) != c.DenyPurge {
			t.Errorf("%s: %v", c.Name, err)
		}
	}
}

// One stream may have another size; the others have what was chosen for all, or keep theirs.
func TestAStreamMayHaveASizeOfItsOwn(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	js := opened(t, nc)
	for _, c := range []struct {
		l    bus.Limits
		want map[string]int64
	}{
		{bus.Limits{MaxBytesOf: bus.MaxBytes{bus.MandateEvents: 8 << 20}}, map[string]int64{bus.MandateEvents: 8 << 20}},
		{bus.Limits{MaxBytes: 2 << 20, MaxBytesOf: bus.MaxBytes{bus.MailEvents: bus.Unlimited}}, map[string]int64{bus.MandateRequests: 2 << 20,
			bus.MandateEvents: 2 << 20, bus.MandateCallbacks: 2 << 20, bus.MailRequests: 2 << 20, bus.MailDeliveries: 2 << 20,
			bus.DeadLetters: 2 << 20, bus.Audit: 2 << 20, bus.Suppressions: 2 << 20}},
		{bus.Limits{MaxBytesOf: bus.MaxBytes{bus.DeadLetters: 4 << 20}}, map[string]int64{bus.MandateRequests: 2 << 20,
			bus.MandateEvents: 2 << 20, bus.MandateCallbacks: 2 << 20, bus.MailRequests: 2 << 20, bus.MailDeliveries: 2 << 20,
			bus.DeadLetters: 4 << 20, bus.Audit: 2 << 20, bus.Suppressions: 2 << 20}},
	} {
		apply(t, js, c.l, false)
		for _, s := range bus.Streams(bus.Limits{}) {
			usual := int64(bus.Unlimited)
			switch s.Name { // always small
			case bus.RateLeases, bus.Keys:
				usual = 1 << 20
			case bus.MandateCallbacks:
				usual = 64 << 20
			case bus.Suppressions:
				usual = 256 << 20
			}
			_, stream := streamOf(t, nc, s.Name)
			if got, want := stream.CachedInfo().Config.MaxBytes, cmp.Or(c.want[s.Name], usual); got != want {
				t.Errorf("%+v: %s has %d, want %d", c.l, s.Name, got, want)
			}
		}
		if plan := planned(t, js, c.l); len(plan) != 0 {
			t.Errorf("%+v: a second time: %q", c.l, plan)
		}
	}
}

// A limit below what is there drops nothing, but programs wait at once: that must be meant.
func TestALimitBelowWhatIsThereMustBeForced(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	js := opened(t, nc)
	for range 3 {
		if _, err := js.Publish(t.Context(), "mandate.enroll.failed.r1", make([]byte, 500<<10)); err != nil {
			t.Fatal(err)
		}
	}
	small := bus.Limits{MaxBytesOf: bus.MaxBytes{bus.MandateEvents: 1 << 20}}
	want := "stream MANDATE_EVENTS: the change may drop messages, stop programs or run requests again; nothing was changed: " +
		"use --force to make it"
	if err := bus.Apply(t.Context(), planOf(t, js, small), false, func(bus.Change) {}); err == nil || err.Error() != want {
		t.Fatalf("got %v, want %s", err, want)
	}
	apply(t, js, small, true)
	if _, s := streamOf(t, nc, bus.MandateEvents); s.CachedInfo().State.Msgs != 3 {
		t.Errorf("%d of 3 messages are left", s.CachedInfo().State.Msgs)
	}
	apply(t, js, bus.Limits{MaxBytesOf: bus.MaxBytes{bus.MandateEvents: 4 << 20}}, false)
}

// The servers reserve what streams may have: one that does not fit is refused, with a word about what to change.
func TestLimitsThatDoNotFitAreRefusedByTheServer(t *testing.T) {
	n, err := devkit.Configured(t.TempDir(), "jetstream { max_file_store: 13MB }\n")
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	nc, err := n.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js := opened(t, nc)
	err = bus.Apply(t.Context(), planOf(t, js, bus.Limits{MaxBytes: 2 << 20}), false, func(bus.Change) {})
	if want := "must fit in the servers' max_file_store"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want it to contain %q", err, want)
	}
	apply(t, js, bus.Limits{MaxBytes: 1 << 20, MaxBytesOf: bus.MaxBytes{bus.MandateEvents: 2 << 20}}, false)
}

// The table of streams in the contract: no stream drops what it was given but those of callbacks, which are hints, of
// leases and of suppressions, of which the last one counts (one of scheduled requests has no limit at which it would), no stream but
// AUDIT and KEYS
// denies a purge, and neither what they have nor events can be deleted one by one.
func TestStreamsKeepWhatTheyHaveAndCanBePurged(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	for _, want := range bus.Streams(bus.Limits{}) {
		_, s := streamOf(t, nc, want.Name)
		c := s.CachedInfo().Config
		forever := c.Name == bus.Audit || c.Name == bus.Keys
		events := c.Name == bus.MandateEvents || c.Name == bus.MandateCallbacks || c.Name == bus.MailEvents || c.Name == bus.Suppressions ||
			forever
		scheduled := c.Name == bus.MandateScheduled || c.Name == bus.MailScheduled
		unlimited := scheduled && c.MaxBytes == -1 && c.MaxAge == 0
		drops := c.Discard != jetstream.DiscardNew && !unlimited || c.MaxMsgs != -1 || c.MaxMsgsPerSubject != -1 && !c.DiscardNewPerSubject
		mayDrop := c.Name == bus.RateLeases || c.Name == bus.MandateCallbacks || c.Name == bus.Suppressions
		if drops != mayDrop || c.DenyPurge != forever ||
			c.AllowRollup != scheduled || c.AllowMsgSchedules != scheduled ||
			c.AllowMsgTTL || c.DenyDelete != events {
			t.Errorf("%s has %+v", c.Name, c)
		}
	}
}

// A stream with a limit of bytes refuses what it has no room for, and keeps what it has.
func TestAFullStreamDropsNothing(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	js := opened(t, nc)
	apply(t, js, bus.Limits{MaxBytes: 64 << 10}, false)
	for _, subject := range []string{"mandate.enroll.requested", "mandate.enroll.failed.r1", "mail.send.requested",
		"mail.send.failed.r1", "mail.log.turn", "dead.mail.send.requested"} {
		n, err := 0, error(nil)
		for ; err == nil && n < 100; n++ {
			_, err = js.Publish(t.Context(), subject, make([]byte, 4<<10))
		}
		var api *jetstream.APIError
		if !errors.As(err, &api) || api.ErrorCode != 10077 {
			t.Errorf("%s, message %d: %v, want that there is no room", subject, n, err)
			continue
		}
		if first, err := js.StreamNameBySubject(t.Context(), subject); err != nil {
			t.Error(err)
		} else if s, err := js.Stream(t.Context(), first); err != nil || s.CachedInfo().State.FirstSeq != 1 ||
			s.CachedInfo().State.Msgs != uint64(n-1) {
			t.Errorf("%s has %+v, %v; want the first %d messages", first, s.CachedInfo().State, err, n-1)
		}
	}
}

func TestCheckRefusesAStreamThatCannotHoldTheEvents(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	js := opened(t, nc)
	alter(t, js, bus.MailEvents, func(c *jetstream.StreamConfig) {
		c.Subjects = slices.DeleteFunc(c.Subjects, func(s string) bool { return strings.HasPrefix(s, string(messages.Batch)) })
	})
	want := "stream MAIL_EVENTS does not take mail.batch.*.*.*: run `errand provision`"
	if _, err := bus.Check(t.Context(), js, nil, bus.MailEvents); err == nil || err.Error() != want {
		t.Fatalf("got %v\nwant %s", err, want)
	}
}

func TestCheckSaysWhatToRun(t *testing.T) {
	n := devtest.Server(t)
	nc, err := n.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := bus.JetStream(context.Background(), nc)
	if err != nil {
		t.Fatal(err)
	}
	_, err = bus.Check(t.Context(), js, []bus.Queue{bus.EnrollQueue}, bus.MandateEvents)
	want := "NATS has no consumer mandate-enroll on stream MANDATE_REQUESTS, no stream MANDATE_EVENTS: run `errand provision --missing` first"
	if err == nil || err.Error() != want {
		t.Fatalf("got %v\nwant %s", err, want)
	}
}

// A request must not wait for longer than its history is kept.
func TestCheckSaysHowLongEventsAreKept(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	js := opened(t, nc)
	streams := []string{bus.MailEvents, bus.MailDeliveries, bus.DeadLetters}
	for _, c := range []struct{ events, deliveries, dead, want time.Duration }{
		{720 * time.Hour, 720 * time.Hour, 720 * time.Hour, 720 * time.Hour},
		{0, 240 * time.Hour, time.Hour, 240 * time.Hour},
		{48 * time.Hour, 0, 0, 48 * time.Hour},
		{0, 0, time.Hour, 0},
	} {
		for name, age := range map[string]time.Duration{bus.MailEvents: c.events, bus.MailDeliveries: c.deliveries, bus.DeadLetters: c.dead} {
			alter(t, js, name, func(s *jetstream.StreamConfig) { s.MaxAge = age })
		}
		found, err := bus.Check(t.Context(), js, []bus.Queue{bus.SendQueue}, streams...)
		if err != nil || found.Kept != c.want || found.Queues["mail-send"] == nil {
			t.Errorf("%+v: got %v, %v, want %v", c, found.Kept, err, c.want)
		}
	}
}

// Newer programs are provisioned before they run, and an older tool must not hide that.
func TestAQueueSaysForWhichRequestsItWasProvisioned(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	js := opened(t, nc)
	queues := []bus.Queue{bus.EnrollQueue}
	if found, err := bus.Check(t.Context(), js, queues); err != nil || found.Newer {
		t.Fatalf("as provisioned: newer %v, %v", found.Newer, err)
	}
	c, err := js.Consumer(t.Context(), bus.EnrollQueue.Stream, bus.EnrollQueue.Name)
	if err != nil {
		t.Fatal(err)
	}
	config := c.CachedInfo().Config
	config.Metadata = map[string]string{"errand.version": "99", "team": "payments"}
	if _, err := js.UpdateConsumer(t.Context(), bus.EnrollQueue.Stream, config); err != nil {
		t.Fatal(err)
	}
	if plan := planned(t, js, bus.Limits{MaxPayload: nc.MaxPayload()}); len(plan) > 0 {
		t.Errorf("an older tool would change %v", plan)
	}
	if found, err := bus.Check(t.Context(), js, queues); err != nil || !found.Newer {
		t.Errorf("provisioned by a newer tool: newer %v, %v", found.Newer, err)
	}
}

// What a server can no longer switch off stays, and so does an age that somebody gave to what
// people did: --max-age is about events.
func TestWhatIsKeptOfActsAndCannotBeSwitchedOffStays(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	js := opened(t, nc)
	alter(t, js, bus.MailDeliveries, func(c *jetstream.StreamConfig) { c.DenyPurge = true })
	alter(t, js, bus.Audit, func(c *jetstream.StreamConfig) { c.MaxAge = 700 * 24 * time.Hour })
	if plan := planned(t, js, bus.Limits{}); len(plan) != 0 {
		t.Errorf("planned %q, want nothing", plan)
	}
	for _, line := range planned(t, js, bus.Limits{MaxAge: 90 * 24 * time.Hour}) {
		if strings.Contains(line, bus.Audit) || strings.Contains(line, "DenyPurge") {
			t.Errorf("planned %q", line)
		}
	}
}

// The history decides when a request comes back: a BackOff that somebody set would, too.
func TestProvisioningTakesABackOffAway(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	js := opened(t, nc)
	config := func() jetstream.ConsumerConfig {
		c, err := js.Consumer(t.Context(), bus.MailRequests, bus.SendQueue.Name)
		if err != nil {
			t.Fatal(err)
		}
		return c.CachedInfo().Config
	}
	changed := config()
	changed.BackOff = []time.Duration{bus.Defaults.AckWait, time.Hour}
	if _, err := js.UpdateConsumer(t.Context(), bus.MailRequests, changed); err != nil {
		t.Fatal(err)
	}
	if plan := planned(t, js, bus.Limits{}); len(plan) != 1 {
		t.Fatalf("planned %q", plan)
	}
	apply(t, js, bus.Limits{}, false)
	if got := config(); len(got.BackOff) != 0 || got.AckWait != bus.Defaults.AckWait {
		t.Errorf("got %+v", got)
	}
}

// A pause is not a setting: provisioning neither shows it nor ends it, whenever it began.
func TestProvisioningLeavesAPauseAlone(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	js := opened(t, nc)
	paused := func(want bool) {
		t.Helper()
		c, err := js.Consumer(t.Context(), bus.MandateRequests, "mandate-enroll")
		if err != nil {
			t.Fatal(err)
		}
		if got := c.CachedInfo().Paused; got != want {
			t.Errorf("paused: %v, want %v", got, want)
		}
	}
	slower := planOf(t, js, bus.Limits{AckWait: 45 * time.Second})
	if _, err := js.PauseConsumer(t.Context(), bus.MandateRequests, "mandate-enroll", time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if plan := planned(t, js, bus.Limits{}); len(plan) != 0 {
		t.Errorf("planned %q, want nothing", plan)
	}
	if err := bus.Apply(t.Context(), slower, false, func(bus.Change) {}); err != nil {
		t.Fatal(err)
	}
	paused(true)
	slower = planOf(t, js, bus.Limits{AckWait: time.Minute})
	if _, err := js.ResumeConsumer(t.Context(), bus.MandateRequests, "mandate-enroll"); err != nil {
		t.Fatal(err)
	}
	if err := bus.Apply(t.Context(), slower, false, func(bus.Change) {}); err != nil {
		t.Fatal(err)
	}
	paused(false)
}

// While a cluster elects, a stream cannot be read.
func TestCopiesAreWaitedForThoughTheStreamCannotBeReadNow(t *testing.T) {
	nc, err := devtest.Server(t).Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	ctx, end := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer end()
	bus.Copied(ctx, opened(t, nc), "NONE", 3) // panicked
	if ctx.Err() == nil {
		t.Error("it did not wait")
	}
}
