package errandtest_test

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/sandbox/devkit/inshort"
	"errand/pkg/errand"
	"errand/pkg/errandtest"
	"errand/pkg/messages"
)

func TestMain(m *testing.M) { errandtest.Main(m) }

func enrollment(order string) messages.EnrollRequest {
	return messages.EnrollRequest{RequestID: "enroll-" + order, Enrollment: messages.Enrollment{OrderNumber: order, Amount: "100.50",
		PayerIDType: "1", PayerID: messages.Digits("900101011234"), PayerName: "Ann Tester", PayerEmail: "ann@example.com",
		PayerTelephoneNumber: messages.Digits("0123456789"), FrequencyMode: "MT", ApplicationReason: "Membership"}}
}

func letter(id string, to ...string) messages.SendRequest {
	return messages.SendRequest{RequestID: id, To: messages.Recipients(to...), Subject: "Hello", Content: "See you."}
}

func publish(t *testing.T, w *errandtest.World, r messages.Request) errand.Receipt {
	t.Helper()
	receipt, err := w.Client.Publish(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return receipt
}

func TestAnEnrollmentWhoseAnswerIsLostIsMadeOnce(t *testing.T) {
	t.Parallel()
	w := errandtest.New(t)
	w.Mandate.CutAfterAccept()
	first := publish(t, w, enrollment("DD001"))
	w.WantOutcome(first, messages.Uncertain)
	w.Mandate.WantOnce("DD001")
	w.Mandate.WantNone("DD002")
	w.Approve("DD001")
	if o := w.WantOutcome(first, messages.Resolved).(errand.Resolved); o.Became != messages.Succeeded {
		t.Errorf("what was approved became %s", o.Became)
	}

	second := publish(t, w, enrollment("DD002"))
	if o, ok := w.WantOutcome(second, messages.Succeeded).(errand.Succeeded); !ok || !strings.Contains(o.Subject, "enroll-DD002") {
		t.Errorf("the outcome is %v", o)
	}
	w.Approve("DD002")
	w.WantEvent("mandate.application.approved.enroll-DD002")
}

func TestFaultsHitTheNextCallOrStayUntilTheyAreLifted(t *testing.T) {
	t.Parallel()
	w := errandtest.New(t)
	w.Mail.Answer(422)
	w.WantOutcome(publish(t, w, letter("next", "ann@example.com")), messages.Failed)
	w.Mail.WantNone("ann@example.com")
	w.WantOutcome(publish(t, w, letter("fine", "ann@example.com")), messages.Accepted)
	w.Mail.WantOnce("ann@example.com")

	w.Mail.Always().For("cem@example.com").Cut()
	w.WantOutcome(publish(t, w, letter("cut", "cem@example.com")), messages.Uncertain)
	w.WantOutcome(publish(t, w, letter("other", "dan@example.com")), messages.Accepted)
	w.Mail.Lift()
	w.WantOutcome(publish(t, w, letter("lifted", "cem@example.com")), messages.Accepted)
	w.Mail.WantOnce("cem@example.com")

	w.Bounce("bob@example.com", 550)
	w.WantOutcome(publish(t, w, letter("bounces", "bob@example.com")), messages.Accepted)
	if body := string(w.WantEvent("mail.delivery.bounced.bounces")); !strings.Contains(body, "550") {
		t.Errorf("it says %s", body)
	}
}

// A service that knows nothing but a URL is served by a port, which closes with the test.
func TestAServiceMayConnectByItself(t *testing.T) {
	t.Parallel()
	var url string
	t.Run("world", func(t *testing.T) {
		w := errandtest.New(t)
		url = w.URL()
		nc, err := nats.Connect(url)
		if err != nil || w.URL() != url {
			t.Fatalf("%s, then %s: %v", url, w.URL(), err)
		}
		defer nc.Close()
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		receipt, err := errand.New(js).Publish(t.Context(), letter("by-url", "ann@example.com"))
		if err != nil {
			t.Fatal(err)
		}
		w.WantOutcome(receipt, messages.Accepted)
	})
	if conn, err := net.Dial("tcp", strings.TrimPrefix(url, "nats://")); err == nil {
		_ = conn.Close()
		t.Errorf("%s is open after the test", url)
	}
}

// A lane of its own, and a message for later.
func TestAMessageWaitsInItsLaneForItsTime(t *testing.T) {
	t.Parallel()
	w := errandtest.New(t, errandtest.Lanes("bulk"))
	later := letter("later", "ann@example.com")
	later.NotBefore = time.Now().Add(time.Second)
	receipt, err := w.Client.Lane("bulk").Publish(t.Context(), later)
	if err != nil {
		t.Fatal(err)
	}
	w.WantEvent("mail.send.deferred.later")
	w.Mail.WantNone("ann@example.com")
	if o := w.WantOutcome(receipt, messages.Accepted); !strings.Contains(w.Story("later"), `"lane":"bulk"`) {
		t.Errorf("%v has no lane: %s", o, w.Story("later"))
	}
	w.Mail.WantOnce("ann@example.com")
	if _, err := w.Client.Lane("none").Publish(t.Context(), later); !errors.Is(err, errand.ErrNotTaken) {
		t.Errorf("a lane that is not declared: %v", err)
	}
}

// Mail to an address that bounced is not sent again, but for what says so.
func TestABounceSuppressesWhatFollows(t *testing.T) {
	errandtest.InBubble(t, func(t *testing.T, w *errandtest.World) {
		w.Bounce("bob@example.com", 550)
		w.WantOutcome(publish(t, w, letter("first", "bob@example.com", "ann@example.com")), messages.Accepted)
		w.WantSuppressed("bob@example.com")
		o := w.WantOutcome(publish(t, w, letter("second", "bob@example.com", "ann@example.com")), messages.Accepted)
		if s, ok := o.(errand.Succeeded); !ok || s.LeftOut != 1 {
			t.Errorf("the outcome is %+v", o)
		}
		w.WantOutcome(publish(t, w, letter("third", "bob@example.com")), messages.Failed)
		all := letter("fourth", "bob@example.com")
		all.Suppress = new(false)
		w.WantOutcome(publish(t, w, all), messages.Accepted)
	}, errandtest.SuppressBounced)
}

// A day takes a moment, and a request that nobody takes is given up at the end of its time.
func TestADayPassesInABubble(t *testing.T) {
	began := time.Now()
	errandtest.InBubble(t, func(t *testing.T, w *errandtest.World) {
		w.Mandate.Always().Answer(503)
		request := enrollment("DD001")
		request.GiveUpAt = time.Now().Add(2 * time.Hour)
		receipt := publish(t, w, request)
		w.Advance(inshort.Choose(t, 24*time.Hour, 4*time.Hour))
		o, _ := w.WantOutcome(receipt, messages.Failed).(errand.Failed)
		if o.Reason != messages.ReasonUnavailable {
			t.Errorf("it ended as %v", o)
		}
		w.Mandate.WantNone("DD001")

		w.Mandate.Lift()
		w.Mandate.CutAfterAccept()
		w.WantOutcome(publish(t, w, enrollment("DD002")), messages.Resolved)
		w.Mandate.WantOnce("DD002")

		w.Mandate.CutAfterAccept()
		receipt = publish(t, w, enrollment("DD003"))
		w.WantOutcome(receipt, messages.Uncertain)
		w.Advance(30 * time.Minute)
		w.Decline("DD003")
		if o := w.WantOutcome(receipt, messages.Resolved).(errand.Resolved); o.Became != messages.Failed {
			t.Errorf("what was declined became %s", o.Became)
		}
	})
	t.Logf("a day took %v", time.Since(began))
}

// A hundred tests of a service, side by side. No goroutine of them is left; without ports, and with files only in the test's own
// directory, nothing else can be.
func TestAHundredWorldsLeaveNothingBehind(t *testing.T) {
	t.Run("first", func(t *testing.T) { errandtest.New(t) }) // what a process keeps of it
	<-time.After(100 * time.Millisecond)
	before, began := runtime.NumGoroutine(), time.Now()
	t.Run("worlds", func(t *testing.T) {
		for i := range inshort.Choose(t, 100, 10) {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				w := errandtest.New(t)
				w.WantOutcome(publish(t, w, letter("hello", "ann@example.com")), messages.Accepted)
				w.Mail.WantOnce("ann@example.com")
			})
		}
	})
	t.Logf("they took %v", time.Since(began))
	for end := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before && time.Now().Before(end); {
		<-time.After(50 * time.Millisecond)
	}
	if after := runtime.NumGoroutine(); after > before {
		stacks := make([]byte, 1<<16)
		t.Errorf("%d goroutines before, %d after\n%s", before, after, stacks[:runtime.Stack(stacks, true)])
	}
}

// A server that shuts down while consumers are made under it holds a lock, on which nothing may wait in a bubble.
func TestAWorldInABubbleEndsWhileConsumersAreMade(t *testing.T) {
	errandtest.InBubble(t, func(t *testing.T, w *errandtest.World) {
		nc := w.Connect()
		for i := range 300 {
			subject := fmt.Sprintf("$JS.API.CONSUMER.CREATE.MAIL_EVENTS.c%d", i)
			config := fmt.Sprintf(`{"stream_name":"MAIL_EVENTS","config":{"name":"c%d","ack_policy":"none","inactive_threshold":1000000000}}`, i)
			if err := nc.PublishRequest(subject, nc.NewInbox(), []byte(config)); err != nil {
				t.Fatal(err)
			}
		}
		if err := nc.Flush(); err != nil {
			t.Fatal(err)
		}
	})
}
