package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"errand/internal/oncall/inspect"
	"errand/internal/sandbox"
	"errand/pkg/messages"
)

// A person sees with the rights of the shipped configuration which programs run, what they
// hold and since when, what waits for that reason, and that it is over.
func TestPeopleSeeWhatIsHeldAndWhatWaitsForIt(t *testing.T) {
	in := install(t, "RETRY_MAX=200ms", "RETRY_TRIES=2")
	nc, js := connectAs(t, in.nats.URL, "ann")
	ann := inspect.Reader{Conn: nc, JS: js}
	problems := func() (list []string) {
		s, err := ann.Status(t.Context(), time.Now())
		must(t, err)
		for _, p := range s.Problems {
			list = append(list, p.Where+": "+p.What)
		}
		return list
	}
	want := []string{"program: no mandate-consumer answers: does one run?", "program: no mail-consumer answers: does one run?", "program: no log-poller answers: does one run?"}
	if got := problems(); !slices.Equal(got, want) {
		t.Errorf("before a program runs: %q, want %q", got, want)
	}
	in.fault(sandbox.Fault{Operation: "enroll", Kind: sandbox.Status, Status: 401})
	for _, program := range everyProgram {
		in.start(program)
	}
	for i := range 5 {
		in.publish("mandate.enroll.requested", enrollment(fmt.Sprint("r", i)))
	}
	in.until("the hold to be seen", time.Minute, func() bool {
		list := problems()
		return len(list) == 1 && strings.HasPrefix(list[0], "upstream: mandate.enroll is held for ") &&
			strings.HasSuffix(list[0], "answers 401: credentials, account or quota")
	})
	stuck, err := ann.Stuck(t.Context(), time.Now(), 100, time.Now())
	if err != nil || len(stuck.Requests) != 5 || len(stuck.Causes) == 0 || !strings.Contains(stuck.Causes[0].Why, "held: mandate service (enroll) answers 401") {
		t.Errorf("what waits: %+v, %v, want 5 requests for a hold", stuck, err)
	}
	in.box.ClearFaults()
	in.until("the end of the hold to be seen", time.Minute, func() bool { return len(problems()) == 0 && in.count("mandate.enroll.succeeded.*") == 5 })
	stories, err := ann.Stories(t.Context(), "r0", time.Now())
	if err != nil || len(stories) != 1 || stories[0].State != messages.Succeeded {
		t.Errorf("the story of r0: %+v, %v", stories, err)
	}
}
