package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"errand/internal/sandbox"
)

// operator starts errand as somebody who may act.
func (in *installation) operator(env []string, args ...string) *process {
	in.t.Helper()
	p, err := launch(in.t, in.programs, "errand", append([]string{"NATS_URL=" + in.nats.URL, "NATS_USER=olga", "NATS_PASSWORD=" +
		password("olga")}, env...), args...)
	must(in.t, err)
	p.expectEnd()
	in.mu.Lock()
	defer in.mu.Unlock()
	in.running = append(in.running, p)
	return p
}

// result is a line of errand dead redrive -o jsonl.
type result struct {
	RequestID string `json:"request_id"`
	Class     string `json:"class"`
	Result    string `json:"result"`
	Message   string `json:"message"`
}

func (p *process) results() (all []result) {
	for line := range strings.Lines(p.output.String()) {
		var r result
		if json.Unmarshal([]byte(line), &r) == nil && r.Result != "" {
			all = append(all, r)
		}
	}
	return all
}

// fates are how the calls of requests go whose ids begin so.
var fates = map[string]sandbox.Fault{
	"refused": {Kind: sandbox.Status, Status: 422}, // nothing done, and said so
	"lost":    {Kind: sandbox.Cut},                 // nothing done, which nobody knows
	"taken":   {Kind: sandbox.AcceptCut},           // done, which nobody knows
}

// troubled publishes requests whose calls go as their ids say, in turn, and waits until they have ended. Many of unknown fate
// in a row would be held for long.
func (in *installation) troubled(enrollments, mails map[string]int) {
	in.t.Helper()
	all, published := 0, -1
	for fate, f := range fates {
		for _, operation := range []string{"enroll", "send"} {
			f.Operation, f.Match = operation, operation+"-"+fate
			in.fault(f)
		}
	}
	for i := 0; published != all; i++ {
		published = all
		for fate := range fates {
			if i < enrollments[fate] {
				in.publish("mandate.enroll.requested", enrollment(fmt.Sprintf("enroll-%s-%d", fate, i)))
				all++
			}
			if i < mails[fate] {
				in.publish("mail.send.requested", message(fmt.Sprintf("send-%s-%d", fate, i), 1))
				all++
			}
		}
	}
	in.until("all to have ended", 3*time.Minute, func() bool { return in.count("dead.*.*.requested") == all })
	in.box.ClearFaults("*")
}

// Two who redrive the same dead letters at once, of whom one is killed in the middle, have each
// run once; nothing is done twice but what was accepted by name, and each result is reported.
func TestTwoOperatorsRedriveTheSameDeadLettersAndOneIsKilled(t *testing.T) {
	in := installWith(t, toolBuild, "RETRY_TRIES=1", "RETRY_MAX=200ms")
	in.start("mandate-consumer")
	in.start("mail-consumer")
	in.troubled(map[string]int{"refused": 200, "lost": 30, "taken": 20}, map[string]int{"refused": 30, "lost": 10, "taken": 10})

	var named []string
	for i := range 20 {
		named = append(named, fmt.Sprint("enroll-lost-", i))
	}
	for i := range 5 {
		named = append(named, fmt.Sprint("send-lost-", i), fmt.Sprint("send-taken-", i))
	}
	plan, sequences := in.plan("--since", "1h")
	var accepted []string
	for _, id := range named {
		accepted = append(accepted, sequences[id])
	}
	args := []string{"dead", "redrive", "--since", "1h", "--yes", "--plan", plan, "--why", "the service is back", "--accept-twice",
		strings.Join(accepted, ","), "-o", "jsonl"}
	killed := in.operator([]string{"ERRAND_FAILPOINT=before republish@60"}, args...)
	other := in.operator(nil, args...)
	killed.await(2 * time.Minute)
	other.await(2 * time.Minute)
	if killed.status != -1 || other.status != 1 { // 40 were not accepted
		t.Fatalf("exit status %d and %d, want a kill and 1\n%s\n%s", killed.status, other.status, killed.lastOutput(), other.lastOutput())
	}
	reported := other.results()
	errorIf(t, len(reported) != 300, "the other one reported %d results of 300\n%s", len(reported), other.lastOutput())
	again := in.operator(nil, args...) // whatever is left over is finished
	again.await(2 * time.Minute)
	for _, r := range again.results() {
		errorIf(t, r.Result == "done" && r.Class != "reopened" && in.count("*.*.reopened."+r.RequestID) > 1, "run a third time: %+v", r)
	}

	done := func(operation, fate, state string) int {
		n := 0
		for subject, count := range in.subjects(operation + "." + state + ".*") {
			if strings.Contains(subject, fate) {
				n += int(count)
			}
		}
		return n
	}
	in.until("all to be run", time.Minute, func() bool {
		return done("mandate.enroll", "", "succeeded") == 220 && done("mail.send", "", "accepted") == 40
	})
	o := in.oracle()
	errorIf(t, o.Enroll.Accepted != 240 || o.Enroll.TwiceCount != 0, "%d enrolled, want 240; twice: %v", o.Enroll.Accepted, o.Enroll.Twice)
	var twice []string
	for _, r := range o.Mail.Twice {
		id := strings.TrimPrefix(r.Subject, "story ")
		twice = append(twice, id)
		errorIf(t, r.Count != 2 || !slices.Contains(named, id), "%s was sent %d times, which nobody accepted", id, r.Count)
	}
	errorIf(t, len(twice) != 5, "sent twice: %q, want the five that were taken and are named", twice)
	equal(t, "enrollments were reopened", done("mandate.enroll", "", "reopened"), 220)
	n := done("mail.send", "", "reopened")
	errorIf(t, n != 40, "%d messages were reopened, want 40, each once", n)
}

// plan returns the plan of a redrive, and the names of its dead letters by request.
func (in *installation) plan(choice ...string) (plan string, sequences map[string]string) {
	in.t.Helper()
	p := in.operator(nil, append([]string{"dead", "redrive", "-o", "jsonl"}, choice...)...)
	p.wantStatus(0, time.Minute)
	sequences = map[string]string{}
	for line := range strings.Lines(p.output.String()) {
		var item struct {
			ID       string `json:"request_id"`
			Sequence uint64 `json:"sequence"`
		}
		if json.Unmarshal([]byte(line), &item) == nil {
			sequences[item.ID] = fmt.Sprint("seq:", item.Sequence)
		}
		if _, after, ok := strings.Cut(line, "--plan "); ok {
			plan, _, _ = strings.Cut(after, " ")
		}
	}
	return plan, sequences
}

// Killed at each step of a redrive, it is finished by doing it again, and runs once.
func TestARedriveSurvivesEveryCrash(t *testing.T) {
	in := installWith(t, toolBuild, "RETRY_TRIES=1", "RETRY_MAX=200ms")
	in.start("mandate-consumer")
	points := []string{"before store mandate.enroll.reopened", "after store mandate.enroll.reopened", "before republish", "after republish"}
	in.troubled(map[string]int{"refused": len(points), "lost": len(points)}, nil)
	for i, point := range points {
		for _, fate := range []string{"refused", "lost"} {
			id := fmt.Sprintf("enroll-%s-%d", fate, i)
			plan, sequences := in.plan(id)
			args := []string{"dead", "redrive", id, "--yes", "--plan", plan, "--why", "back", "--accept-twice", sequences[id]}
			killed := in.operator([]string{"ERRAND_FAILPOINT=" + point}, args...)
			if killed.await(time.Minute); killed.status != -1 {
				t.Fatalf("%s, %s: exit status %d, want a kill\n%s", point, id, killed.status, killed.lastOutput())
			}
			in.operator(nil, args...).wantStatus(0, time.Minute)
			in.until(id+" to be enrolled", time.Minute, func() bool { return in.count("mandate.enroll.succeeded."+id) == 1 })
			n := in.count("mandate.enroll.reopened." + id)
			errorIf(t, n != 1, "%s, %s: reopened %d times", point, id, n)
		}
	}
	if o := in.oracle(); o.Enroll.Accepted != 2*len(points) || o.Enroll.TwiceCount != 0 {
		t.Errorf("%d enrolled, want %d; twice: %v", o.Enroll.Accepted, 2*len(points), o.Enroll.Twice)
	}
}
