package inspect

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"errand/internal/bus"
	"errand/pkg/messages"
)

func TestWhatIsWrongIsSaid(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ago := func(d time.Duration) messages.Time { return messages.Time{Time: now.Add(-d)} }
	fine := func() Status {
		read, began := ago(time.Second), ago(time.Minute)
		return Status{At: ago(0), Programs: []bus.ProgramStatus{{Program: "mandate-consumer"}, {Program: "mail-consumer"},
			{Program: "log-poller"}},
			Queues: []Queue{{Operation: messages.Enroll, Untaken: 3, FirstFree: &began}}, Poller: Poller{ReadThrough: &read},
			Streams: []Stream{{Name: "S", Bytes: 80, MaxBytes: 100, Replicas: 3, Current: 3}, {Name: "T", Bytes: 9, MaxBytes: -1}},
			Storage: Storage{Bytes: 80, Limit: 100}}
	}
	outcomes := func(of ...Outcome) func(*Status) { return func(s *Status) { s.Outcomes = of } }
	for _, c := range []struct {
		spoil func(*Status)
		want  []string
	}{
		{func(*Status) {}, nil},
		{func(s *Status) { s.Programs = s.Programs[1:] }, []string{"missing: no mandate-consumer answers: does one run?"}},
		{func(s *Status) { s.Programs[0].Host, s.Programs[0].Faults = "pod", []string{"no disk"} },
			[]string{"nobody_ready: mandate-consumer on pod: no disk"}},
		{func(s *Status) {
			s.Programs[2].Host, s.Programs[2].Faults, s.Programs[2].Upstream = "pod", []string{"no disk", "status 503"}, "status 503"
		}, []string{"list_refused: log-poller on pod: status 503", "nobody_ready: log-poller on pod: no disk"}},
		{func(s *Status) { // another one reads it
			s.Programs[2].Host, s.Programs[2].Faults, s.Programs[2].Upstream = "pod", []string{"status 503"}, "status 503"
			s.Programs = append(s.Programs, bus.ProgramStatus{Program: bus.LogPoller})
		}, []string{"not_ready: log-poller on pod: status 503"}},
		{func(s *Status) {
			held := []bus.Hold{{Operation: messages.Enroll, Why: "it answers 503", Since: ago(3 * time.Minute)}}
			s.Programs[0].Holds = held
			s.Programs = append(s.Programs, bus.ProgramStatus{Program: "mandate-consumer", Holds: held})
		}, []string{"held: mandate.enroll is held for 3m: it answers 503"}},
		{func(s *Status) {
			s.Programs[0].Notes = []string{"it is UTC"}
			s.Programs = append(s.Programs, s.Programs[0], bus.ProgramStatus{Program: bus.TransactionPoller, Duplicates: []string{"r1", "r2"}})
		}, []string{"duplicates: the transaction list has two applications for r1: its payer may be enrolled twice",
			"duplicates: the transaction list has two applications for r2: its payer may be enrolled twice", "noted: mandate-consumer: it is UTC"}},
		{func(s *Status) { *s.Queues[0].FirstFree = ago(16 * time.Minute) },
			[]string{"backlog: mandate.enroll: 3 waiting for a worker, the oldest for 16m"}},
		{func(s *Status) { s.Queues[0].Stranded = 5 },
			[]string{"stranded: mandate.enroll: the queue has forgotten 5 of its requests: errand provision --missing --repair"}},
		{func(s *Status) { // it may have run them: the programs do not start it over, either
			made, oldest := ago(59*time.Minute), ago(time.Hour)
			s.Queues[0].Stranded, s.Queues[0].restored, s.Queues[0].Oldest = 5, made.Time, &oldest
			s.Streams = append(s.Streams, Stream{Name: bus.MandateEvents, Created: made})
		}, []string{"stranded: mandate.enroll: the queue has forgotten 5 of its requests: nobody knows which of these were run: " +
			"first read docs/on-call/disaster.md",
			"restored: MANDATE_EVENTS was made 59m ago, after requests of mandate.enroll that still wait: whether these were run " +
				"before is not known to it"}},
		{func(s *Status) { // as the alert: it is the upstream
			*s.Queues[0].FirstFree = ago(16 * time.Minute)
			s.Programs[0].Holds = []bus.Hold{{Operation: messages.Enroll, Why: "it answers 503", Since: ago(17 * time.Minute)}}
		}, []string{"held: mandate.enroll is held for 17m: it answers 503"}},
		{func(s *Status) { // likewise
			until := ago(-time.Hour)
			*s.Queues[0].FirstFree, s.Queues[0].PausedUntil = ago(16*time.Minute), &until
		}, []string{"paused: mandate.enroll is paused for another 60m"}},
		{func(s *Status) { until := ago(-time.Hour); s.Queues[0].PausedUntil = &until },
			[]string{"paused: mandate.enroll is paused for another 60m"}},
		{func(s *Status) {
			until := ago(-time.Hour)
			s.Queues[0].PausedUntil, s.Queues[0].Pause = &until, &Pause{"olga", "INC-4711"}
		}, []string{"paused: mandate.enroll is paused for another 60m by olga: INC-4711"}},
		{func(s *Status) {
			at := ago(121 * time.Second)
			s.due[1] = Queue{Operation: messages.Send, Untaken: 7, FirstFree: &at}
		},
			[]string{"overdue: mail.send: 7 scheduled, due for 2m and not in the queue: errand provision --missing --repair"}},
		{func(s *Status) { // whoever moves them is not ready
			at := ago(time.Hour)
			s.due[1], s.Programs[1].Faults = Queue{Operation: messages.Send, Untaken: 7, FirstFree: &at}, []string{"no disk"}
		}, []string{"nobody_ready: mail-consumer on : no disk"}},
		{func(s *Status) {
			at := ago(time.Minute)
			s.due[0] = Queue{Operation: messages.Enroll, Untaken: 7, FirstFree: &at}
		}, nil},
		{func(s *Status) { *s.Poller.ReadThrough = ago(6 * time.Minute) }, []string{"log_lag: the sending log is read up to 6m ago"}},
		{func(s *Status) {
			marked := ago(7 * time.Minute)
			s.Programs[2].Standby, s.Programs[2].Started, s.Poller = true, ago(time.Hour), Poller{Marked: &marked}
		}, []string{"log_lag: the sending log is read up to 7m ago"}},
		{func(s *Status) { // it has just started
			marked := ago(7 * time.Minute)
			s.Programs[2].Standby, s.Programs[2].Started, s.Poller = true, ago(time.Second), Poller{Marked: &marked}
		}, nil},
		{func(s *Status) { read := ago(9 * time.Minute); s.Transactions = &Poller{ReadThrough: &read} }, nil},
		{func(s *Status) { read := ago(11 * time.Minute); s.Transactions = &Poller{ReadThrough: &read} },
			[]string{"transactions_lag: the transaction list is read up to 11m ago"}},
		{func(s *Status) { marked := ago(61 * time.Minute); s.Transactions = &Poller{Marked: &marked} }, nil},
		{func(s *Status) { marked := ago(3 * time.Hour); s.Transactions = &Poller{Marked: &marked} },
			[]string{"no_transaction_poller: no transaction-poller answers, and none has read the list for 3h: does one run?"}},
		{func(s *Status) { s.Streams[0].Bytes = 81 }, []string{"stream_fills: S has 81% of its maximum size"}},
		{func(s *Status) { s.Streams[0].Current = 2 }, []string{"replicas: S has 2 of 3 replicas"}},
		{func(s *Status) { // of all lanes it is said once
			oldest := ago(time.Hour)
			s.Queues[0].Oldest = &oldest
			s.Queues = append(s.Queues, s.Queues[0])
			s.Streams = append(s.Streams, Stream{Name: bus.MandateEvents, Created: ago(59 * time.Minute)})
		}, []string{"restored: MANDATE_EVENTS was made 59m ago, after requests of mandate.enroll that still wait: whether " +
			"these were run before is not known to it"}},
		{func(s *Status) { s.Streams[0].Name, s.Streams[0].Bytes = bus.MailRequests, 96 },
			[]string{"queue_full: MAIL_REQUESTS has 96% of its maximum size: new requests are refused"}},
		{func(s *Status) { *s.Poller.ReadThrough = ago(11 * time.Minute) }, []string{"log_not_read: the sending log is read up to 11m ago"}},
		{func(s *Status) {
			s.Programs[0].Host, s.Programs[0].Faults = "pod", []string{"no disk"}
			s.Programs = append(s.Programs, bus.ProgramStatus{Program: "mandate-consumer"})
		}, []string{"not_ready: mandate-consumer on pod: no disk"}},
		{outcomes(Outcome{Operation: messages.Enroll, State: messages.Failed, Count: 8},
			Outcome{Operation: messages.Enroll, State: messages.Succeeded, Count: 21},
			Outcome{Operation: messages.Enroll, State: messages.Uncertain, Count: 5, Still: 4}),
			[]string{"failing: mandate.enroll: 8 of 34 failed in the last hour",
				"uncertain: mandate.enroll: 4 ended uncertain in the last hour and still are"}},
		{outcomes(Outcome{Operation: messages.Send, State: messages.Failed, Count: 5, Recent: 5},
			Outcome{Operation: messages.Send, State: messages.Accepted, Count: 2000, Recent: 95}),
			[]string{"failing: mail.send: 5 of 100 failed in the last 15m"}},
		{outcomes(Outcome{Operation: messages.Send, State: messages.Failed, Count: 4},
			Outcome{Operation: messages.Send, State: messages.Resolved, Count: 9}), nil},
		{outcomes(Outcome{Operation: messages.Send, State: messages.Failed, Count: 7},
			Outcome{Operation: messages.Send, State: messages.Accepted, Count: 193}), nil},
		{func(s *Status) { s.Storage.Bytes = 99 }, []string{"storage: its storage is 99% full"}},
	} {
		s := fine()
		c.spoil(&s)
		if got := ids(Problems(s), func(p Problem) string { return p.Kind + ": " + p.What }); !slices.Equal(got, c.want) {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

// Status, the console's banner and the alerts call the same things wrong, from the same thresholds on.
func TestEveryAlertNamesAProblem(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../deploy/k8s/components/monitoring/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	rules := map[string]string{}
	for _, rule := range strings.Split(string(text), "- alert: ")[1:] {
		name, rest, _ := strings.Cut(rule, "\n")
		rules[name] = strings.Join(strings.Fields(rest), " ")
	}
	named := map[string]bool{}
	severity := regexp.MustCompile(`severity: (\w+)`)
	for _, k := range ProblemKinds {
		if (len(alertsOf[k.Kind]) == 0) != (noAlert[k.Kind] != "") {
			t.Errorf("%s: has the alerts %q and says why there is none: %q", k.Kind, alertsOf[k.Kind], noAlert[k.Kind])
		}
		for _, alert := range alertsOf[k.Kind] {
			named[alert] = true
			if of := severity.FindStringSubmatch(rules[alert]); of == nil || of[1] != string(k.Severity) {
				t.Errorf("%s: is %s, and its alert %s %q", k.Kind, k.Severity, alert, of)
			}
		}
	}
	for alert := range rules {
		if _, alone := alertsAlone[alert]; alone == named[alert] {
			t.Errorf("%s: is alone %t, and named by a problem %t", alert, alone, named[alert])
		}
	}
	for alert := range alertsAlone {
		if rules[alert] == "" {
			t.Errorf("%s: there is no such alert", alert)
		}
	}
	for alert, want := range map[string]string{
		"ErrandBacklog":         fmt.Sprintf("> %g * sum", longWait.Seconds()),
		"ErrandPollLag":         fmt.Sprintf("> %g for", longLag.Seconds()),
		"ErrandTransactionsLag": fmt.Sprintf("> %g for", listLag.Seconds()),
		"ErrandNoPollerAtWork":  fmt.Sprintf("[%gm]", stoppedRead.Minutes()),
		"ErrandStreamFills":     fmt.Sprintf("> %g * max", fullPart),
		"ErrandQueueRefuses":    fmt.Sprintf("> %g * max", refusesPart),
		"ErrandFailing":         fmt.Sprintf("[%gm])) >= clamp_min(%g * sum", recentWindow.Minutes(), failedPart),
		"ErrandFailing ":        fmt.Sprintf(", %d)", failedMost),
		"ErrandUncertain":       `outcome="uncertain"`,
		"ErrandReplicas":        "errand_stream_replicas_current",
	} {
		if rule := rules[strings.TrimSpace(alert)]; !strings.Contains(rule, want) {
			t.Errorf("%s: its rule lacks %q: %s", alert, want, rule)
		}
	}
}

// As in errand_requests_total, which counts a cancelled request as repeated.
func TestCancelledRequestsAreNoFailures(t *testing.T) {
	t.Parallel()
	in := provisioned(t)
	outcomes := func(n int, state messages.State, reason messages.Reason) {
		for i := range n {
			in.store(messages.Send.Subject(state, fmt.Sprintf("%s-%s-%d", state, reason, i)), body{"reason": reason})
		}
	}
	for _, c := range []struct {
		n      int
		state  messages.State
		reason messages.Reason
		want   []string
	}{
		{6, messages.Accepted, "", nil},
		{6, messages.Failed, messages.ReasonCancelled, nil},
		{4, messages.Failed, messages.ReasonRefused, nil},
		{1, messages.Failed, messages.ReasonConflict, []string{"mail.send: 5 of 17 failed in the last hour"}},
	} {
		for i := range c.n {
			if c.reason == messages.ReasonCancelled {
				subject := fmt.Sprintf("audit.cancel.ann.failed-cancelled-%d", i)
				in.store(subject, body{"operation": messages.Send}) // as an act is before it is done
				in.store(subject, body{"operation": messages.Send, "result": "done"})
			}
		}
		outcomes(c.n, c.state, c.reason)
		s, err := in.Status(t.Context(), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		s.Problems = slices.DeleteFunc(s.Problems, func(p Problem) bool { return p.Kind != "failing" })
		if got := ids(s.Problems, func(p Problem) string { return p.What }); !slices.Equal(got, c.want) {
			t.Errorf("after %d %s %s: got %q, want %q", c.n, c.state, c.reason, got, c.want)
		}
	}
}

// As `errand list --state uncertain`: what was resolved, or runs again, is nobody's to look at.
func TestResolvedAndRedrivenRequestsAreNoLongerUncertain(t *testing.T) {
	t.Parallel()
	in := provisioned(t)
	for _, id := range []string{"resolved", "redriven", "open"} {
		in.store("mail.send.uncertain."+id, body{"reason": "no_answer"})
	}
	in.store("mail.send.resolved.resolved", body{"outcome": "accepted"})
	in.store("mail.send.reopened.redriven", body{})
	in.store("mail.send.accepted.redriven", body{})
	uncertain := func() []string {
		t.Helper()
		s, err := in.Status(t.Context(), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		s.Problems = slices.DeleteFunc(s.Problems, func(p Problem) bool { return p.Kind != "uncertain" })
		return ids(s.Problems, func(p Problem) string { return p.What })
	}
	if got, want := uncertain(), []string{"mail.send: 1 ended uncertain in the last hour and still are"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	in.store("mail.send.resolved.open", body{"outcome": "accepted"})
	if got := uncertain(); len(got) > 0 {
		t.Errorf("all have another outcome: %q", got)
	}
}

// alertsOf are the alerts that fire for each kind of problem, and noAlert is why none does.
var alertsOf = map[string][]string{
	"held":                  {"ErrandHeld"},
	"list_refused":          {"ErrandNobodyReady"},
	"missing":               {"ErrandDown"},
	"no_transaction_poller": {"ErrandDown"},
	"nobody_ready":          {"ErrandNobodyReady", "ErrandStreamRefuses"},
	"not_ready":             {"ErrandNotReady"},
	"queue_full":            {"ErrandQueueRefuses"},
	"stranded":              {"ErrandStranded"},
	"overdue":               {"ErrandStranded"},
	"paused":                {"ErrandPaused"},
	"backlog":               {"ErrandBacklog"},
	"failing":               {"ErrandFailing"},
	"uncertain":             {"ErrandUncertain"},
	"duplicates":            {"ErrandEnrolledTwice"},
	"log_not_read":          {"ErrandNoPollerAtWork"},
	"log_lag":               {"ErrandPollLag"},
	"transactions_lag":      {"ErrandTransactionsLag"},
	"stream_fills":          {"ErrandStreamFills"},
	"replicas":              {"ErrandReplicas"},
}

var noAlert = map[string]string{
	"restored": "a person who restores a stream looks at the status; programs do not know when a stream was made",
	"noted":    "the program works all the same",
	"storage":  "no program may ask for the account's storage",
}

// alertsAlone are the alerts for which status has no problem, and why.
var alertsAlone = map[string]string{
	"ErrandReconnects":         "each process counts them for itself",
	"ErrandStreamUnlimited":    "a new installation has no limits, by choice; what fills the disk is a problem when it does",
	"ErrandNATSMemory":         "it is the kubelet's metric",
	"ErrandFailed":             "single failures are no problem; status counts them",
	"ErrandBudgetBurns":        "it is about hours and days; failing and uncertain say what is wrong now",
	"ErrandPanics":             "each process counts them for itself; the request fails, and status counts that",
	"ErrandCallsOfUnknownFate": "each process counts its calls; a hold or uncertain requests follow",
	"ErrandCallsTurnedAway":    "each process counts its calls; it notes that, or holds the operation",
	"ErrandLookUpsLate":        "each poller counts its looks",
	"ErrandCallbacksRefused":   "callback-receiver counts them for itself",
	"ErrandCallbacksForeign":   "callback-receiver counts them for itself",
	"ErrandMemory":             "each process measures it for itself",
	"ErrandRecipientsFull":     "the poller notes it",
	"ErrandRestarts":           "Kubernetes restarts programs, and knows how often",
}

// What a schedule has forgotten is no queue's, and only ErrandStranded told.
func TestScheduledRequestsThatStayBehindAreSeen(t *testing.T) {
	t.Parallel()
	in := provisioned(t)
	in.store("scheduled.mail.send.due.r.0123456789abcdef", body{"request_id": "r"}, bus.HeaderRequestID, "r")
	if _, err := in.js.ResetConsumerToSequence(t.Context(), bus.MailScheduled, bus.SendSchedules.Name, 2); err != nil {
		t.Fatal(err)
	}
	s, err := in.Status(t.Context(), time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	s.Programs = append(s.Programs, bus.ProgramStatus{Program: "mail-consumer"})
	want := "mail.send: 1 scheduled, due for 60m and not in the queue: errand provision --missing --repair"
	if got := ids(Problems(s), func(p Problem) string { return p.What }); !slices.Contains(got, want) {
		t.Errorf("got %q, want among them %q", got, want)
	}
}

// Each more is an answer more that may be lost.
func TestStatusAsksForAHistoryOnce(t *testing.T) {
	t.Parallel()
	in := provisioned(t)
	for _, op := range Operations {
		in.store(op.Requested(), body{"request_id": "r"})
	}
	asked := atomic.Int32{}
	sub, err := in.Conn.Subscribe("$JS.API.STREAM.INFO.MANDATE_EVENTS", func(*nats.Msg) { asked.Add(1) })
	if err == nil {
		err = in.Conn.Flush()
	}
	if err == nil {
		_, err = in.Status(t.Context(), time.Now())
	}
	if err == nil {
		err = sub.Drain()
	}
	for err == nil && sub.IsValid() {
		<-time.After(time.Millisecond)
	}
	if n := asked.Load(); err != nil || n != 1 {
		t.Errorf("it was asked for %d times, %v", n, err)
	}
}

// To deliver them is to run them again, if the history that was lost had their outcomes.
func TestForgottenRequestsOfALostHistoryAreNotToBeDelivered(t *testing.T) {
	t.Parallel()
	in := provisioned(t)
	in.store(messages.Enroll.Requested(), body{"request_id": "r"})
	if _, err := in.js.ResetConsumerToSequence(t.Context(), bus.EnrollQueue.Stream, bus.EnrollQueue.Name, 2); err != nil {
		t.Fatal(err)
	}
	says := func(want string) {
		t.Helper()
		now := time.Now().Add(time.Hour)
		stuck, err := in.Stuck(t.Context(), now, 10, now)
		if err != nil || len(stuck.Causes) != 1 || stuck.Causes[0].Why != "its queue has forgotten it: "+want {
			t.Errorf("%+v %v, want %s", stuck, err, want)
		}
	}
	says("errand provision --missing --repair")
	events, err := in.js.Stream(t.Context(), bus.MandateEvents)
	if err == nil {
		err = in.js.DeleteStream(t.Context(), bus.MandateEvents)
	}
	if err == nil {
		_, err = in.js.CreateStream(t.Context(), events.CachedInfo().Config)
	}
	if err != nil {
		t.Fatal(err)
	}
	says("nobody knows which of these were run: first read docs/on-call/disaster.md")
}
