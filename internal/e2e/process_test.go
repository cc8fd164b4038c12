//go:build unix

package e2e

import (
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"errand/internal/bus"
	"errand/internal/devkit/devtest"
	"errand/internal/sandbox"
	"errand/pkg/messages"
)

// A program is told to end with all hands in calls of a second and a half: the calls
// end, their outcomes are stored, nothing comes back, and a second run does the rest.
func TestSIGTERMUnderLoadExitsWithZero(t *testing.T) {
	const requests, hands = 20, 7 // the eighth hand waits at the program's other queue
	in := install(t, "CONCURRENCY=8", "UPSTREAM_TIMEOUT=10s")
	in.set(func(s *sandbox.Settings) { s.Latency = sandbox.Duration(1500 * time.Millisecond) })
	for i := range requests {
		in.publish("mandate.enroll.requested", enrollment(fmt.Sprint("r", i)))
		in.publish("mail.send.requested", message(fmt.Sprint("m", i), 3))
	}
	for _, c := range []struct {
		program, call string
		queue         bus.Queue
		history, well string
	}{
		{"mandate-consumer", "enroll", bus.EnrollQueue, "mandate.enroll.*.*", "mandate.enroll.succeeded.*"},
		{"mail-consumer", "send", bus.SendQueue, "mail.send.*.*", "mail.send.accepted.*"},
	} {
		p := in.start(c.program)
		in.until("all hands full", 20*time.Second, func() bool { return in.calls(c.call) == hands })
		if status, body := p.get("/readyz"); status != http.StatusOK {
			t.Errorf("%s is not ready: %d %s", p.name, status, body)
		}
		if _, body := p.get("/metrics"); !strings.Contains(body, fmt.Sprint("errand_in_hand ", hands)) {
			t.Errorf("%s does not count what it has in hand:\n%s", p.name, body)
		}
		in.until("all hands full again", 20*time.Second, func() bool { return in.calls(c.call) == 2*hands })
		p.stop(5 * time.Second) // hits the calls at their beginning

		// The server has every acknowledgement when the program ends, and works them off after that.
		for end := time.Now().Add(5 * time.Second); in.queue(c.queue).NumAckPending != 0 && time.Now().Before(end); {
			runtime.Gosched()
		}
		if q := in.queue(c.queue); q.NumRedelivered != 0 || q.NumAckPending != 0 || q.Delivered.Consumer != 2*hands || q.AckFloor.Consumer != 2*hands {
			t.Errorf("%s after SIGTERM: %d redelivered, %d in hand, %d of %d deliveries acknowledged", c.queue.Name,
				q.NumRedelivered, q.NumAckPending, q.AckFloor.Consumer, q.Delivered.Consumer)
		}
		p = in.start(c.program)
		in.waitTold(c.history, requests, 30*time.Second)
		p.stop(5 * time.Second)
		if q := in.queue(c.queue); q.Delivered.Consumer != requests || in.left(c.queue) != 0 {
			t.Errorf("%s: %d deliveries of %d requests, %d left", c.queue.Name, q.Delivered.Consumer, requests, in.left(c.queue))
		}
		if well, calls := in.count(c.well), in.calls(c.call); well != requests || calls != requests {
			t.Errorf("%d of %d requests ended well, with %d calls", well, requests, calls)
		}
	}
}

// A message of many batches is put back between two of them; no batch is uncertain.
func TestSIGTERMBetweenTwoBatchesLosesNone(t *testing.T) {
	const recipients, batches = 8000, 8
	in := install(t, "MAIL_BATCH_PARALLEL=2")
	in.set(func(s *sandbox.Settings) { s.Latency = sandbox.Duration(500 * time.Millisecond) })
	in.publish("mail.send.requested", message("m1", recipients))
	for _, taken := range []int{0, 3} {
		p := in.start("mail-consumer")
		in.until("batches on their way", 20*time.Second, func() bool {
			return in.submissions() >= taken && in.inFlight.Load() == 2
		})
		p.stop(5 * time.Second)
		if in.inFlight.Load() != 0 {
			t.Error("it ended before its calls")
		}
	}
	p := in.start("mail-consumer")
	in.waitTold("mail.send.*.m1", 1, 20*time.Second)
	p.stop(5 * time.Second)
	if e := in.oneEnd("mail.send.*.m1"); e.state() != messages.Accepted || number(e.Body["accepted"]) != recipients {
		t.Errorf("body: %s", e.Raw)
	}
	in.wantBatchesAsTheOracleKnows("m1", recipients, batches)
	if o := in.box.Oracle(sandbox.Query{Summary: true}); o.Calls["send"] != batches || o.Mail.TwiceCount != 0 {
		t.Errorf("%d calls for %d batches, %d served twice", o.Calls["send"], batches, o.Mail.TwiceCount)
	}
}

// A worker stands still past its deadline, once during a call and once between two,
// while another one takes over. When it goes on, it finds itself fenced: it makes no
// call, tells nothing, and is as good as before.
func TestPausedWorkerDoesNotCallAgain(t *testing.T) {
	in := install(t, "RETRY_FIRST=2s", "RETRY_MAX=2s")
	in.fault(sandbox.Fault{Operation: "enroll", Kind: sandbox.DelayAnswer, Match: "order-in-call", Delay: sandbox.Duration(time.Hour)})
	in.fault(sandbox.Fault{Operation: "enroll", Kind: sandbox.Status, Match: "order-between", Status: 503})
	paused := in.start("mandate-consumer")
	in.publish("mandate.enroll.requested", enrollment("in-call", "on_unknown", "report"))
	in.publish("mandate.enroll.requested", enrollment("between", "on_unknown", "report"))
	in.until("one call to be at work and one to be refused", 20*time.Second, func() bool {
		return in.inFlight.Load() == 1 && in.calls("enroll") == 2
	})
	paused.pause()

	other := in.start("mandate-consumer")
	in.waitTold("mandate.enroll.*.*", 2, time.Minute)
	if e := in.wantOne("mandate.enroll.uncertain.in-call"); e.reason() != "link_lost" {
		t.Errorf("body: %s", e.Raw)
	}
	if e := in.wantOne("mandate.enroll.uncertain.between"); e.reason() != "interrupted" {
		t.Errorf("body: %s", e.Raw)
	}
	before := in.count("mandate.enroll.*.*")

	paused.resume()
	for _, id := range []string{"in-call", "between"} {
		lost := func() bool {
			return paused.says(`"request_id":"`+id+`"`, `"message":"put back"`, "another worker wrote in between")
		}
		told := func() bool { return paused.says(`"request_id":"`+id+`"`, `"message":"settled"`, `"repeated":false`) }
		in.until("it to be done with "+id, 30*time.Second, func() bool { return lost() || told() })
		if told() {
			t.Errorf("it does not notice that it lost %s:\n%s", id, paused.last())
		}
	}
	other.stop(10 * time.Second)
	in.publish("mandate.enroll.requested", enrollment("afterwards"))
	in.waitTold("mandate.enroll.*.afterwards", 1, 30*time.Second)
	paused.stop(10 * time.Second)
	if !paused.says("settled", `"request_id":"afterwards"`) {
		t.Errorf("somebody else settled it:\n%s", paused.last())
	}

	if got := in.count("mandate.enroll.*.*"); got != before+2 {
		t.Errorf("%d events, want %d and the two of the last request", got, before)
	}
	for _, id := range []string{"in-call", "between", "afterwards"} {
		in.oneEnd("mandate.enroll.*." + id)
	}
	if calls := in.calls("enroll"); calls != 3 {
		t.Errorf("%d calls for three requests", calls)
	}
	if n := in.box.Enrolled("order-in-call"); n != 1 {
		t.Errorf("enrolled %d times", n)
	}
	if n := in.left(bus.EnrollQueue); n != 0 {
		t.Errorf("%d requests left", n)
	}
}

func (in *installation) calls(operation string) int64 {
	return in.box.Oracle(sandbox.Query{Summary: true}).Calls[operation]
}

// Bad configuration is told with the name of the variable and status 2, missing
// streams with what to run and status 1; neither tells a secret.
func TestExitStatusTellsWhatIsWrong(t *testing.T) {
	dir := shipped.programs(t)
	n := devtest.Server(t)
	mandate := []string{"NATS_URL=" + n.URL, "ADMIN_ADDR=127.0.0.1:0", "MANDATE_API_URL=https://127.0.0.1:1",
		"MANDATE_API_TOKEN=" + mandateToken, "MANDATE_PORTAL_KEY=" + portalKey, "MANDATE_CHECKSUM_SECRET=" + checksumSecret}
	mail := []string{"NATS_URL=" + n.URL, "ADMIN_ADDR=127.0.0.1:0", "MAIL_API_URL=https://127.0.0.1:1", "MAIL_API_KEY=" + mailKey}
	empty := secretFile(t, "empty", " \n")
	with := func(env []string, more ...string) []string { return append(slices.Clip(env), more...) }
	for _, c := range []struct {
		program string
		env     []string
		status  int
		says    []string // in one line
	}{
		{"mandate-consumer", with(mandate, "MANDATE_API_URL="), 2, []string{"MANDATE_API_URL: is not set"}},
		{"mandate-consumer", with(mandate, "MANDATE_API_URL=http://mandates.example.com"), 2, []string{"MANDATE_API_URL", "plain http://"}},
		{"mandate-consumer", with(mandate, "MANDATE_API_URL=https://me:"+mandateToken+"@mandates.example.com"), 2, []string{"MANDATE_API_URL", "user"}},
		{"mandate-consumer", with(mandate, "MANDATE_API_TOKEN="), 2, []string{"MANDATE_API_TOKEN: is not set"}},
		{"mandate-consumer", with(mandate, "MANDATE_API_TOKEN="+mandateToken+"\x01"), 2, []string{"MANDATE_API_TOKEN"}},
		{"mandate-consumer", with(mandate, "MANDATE_API_TOKEN_FILE=also"), 2, []string{"MANDATE_API_TOKEN: "}},
		{"mandate-consumer", with(mandate, "MANDATE_API_VERSION=v2"), 2, []string{"MANDATE_API_V2_URL: is not set"}},
		{"mandate-consumer", with(mandate, "CONCURRENCY=0"), 2, []string{"CONCURRENCY: must be"}},
		{"mandate-consumer", with(mandate, "CONCURRENCY=many"), 2, []string{"CONCURRENCY"}},
		{"mandate-consumer", with(mandate, "UPSTREAM_TIMEOUT=soon"), 2, []string{"UPSTREAM_TIMEOUT"}},
		{"mandate-consumer", with(mandate, "ADMIN_ADDR=nowhere"), 2, []string{"ADMIN_ADDR: "}},
		{"mandate-consumer", with(mandate, "NATS_USER=me", "NATS_PASSWORD_FILE=/nowhere/"), 2, []string{"NATS_PASSWORD_FILE: /nowhere/: no such file"}},
		{"mandate-consumer", with(mandate, "NATS_USER=me", "NATS_PASSWORD_FILE="+empty), 2, []string{"NATS_PASSWORD_FILE: the file is empty"}},
		{"mandate-consumer", with(mandate, "NATS_USER=me", "NATS_PASSWORD_FILE="+empty, "NATS_PASSWORD="+mailKey), 2, []string{"NATS_PASSWORD and NATS_PASSWORD_FILE: give one"}},
		{"mandate-consumer", with(mandate, "NATS_PASSWORD_FILE="+empty), 2, []string{"NATS_PASSWORD_FILE: give NATS_USER too"}},
		{"mandate-consumer", mandate, 1, []string{"run `errand provision`"}},
		{"mail-consumer", with(mail, "MAIL_API_URL="), 2, []string{"MAIL_API_URL: is not set"}},
		{"mail-consumer", with(mail, "MAIL_API_URL=http://mail.example.com"), 2, []string{"MAIL_API_URL", "plain http://"}},
		{"mail-consumer", with(mail, "MAIL_API_KEY="), 2, []string{"MAIL_API_KEY: is not set"}},
		{"mail-consumer", with(mail, "MAIL_BATCH_SIZE=1001"), 2, []string{"MAIL_BATCH_SIZE: must be"}},
		{"mail-consumer", mail, 1, []string{"run `errand provision`"}},
	} {
		p, err := launch(t, dir, c.program, c.env)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.kill)
		p.wantStatus(c.status, 10*time.Second)
		if !p.says(c.says...) {
			t.Errorf("%s with %q does not say %q:\n%s", c.program, c.env, c.says, p.last())
		}
		p.keptItsSecrets()
	}
	for program, env := range map[string][]string{"mandate-consumer": mandate, "mail-consumer": mail} {
		p, err := launch(t, dir, program, env, "--help")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.kill)
		p.wantStatus(0, 10*time.Second)
		p.keptItsSecrets()
	}
}
