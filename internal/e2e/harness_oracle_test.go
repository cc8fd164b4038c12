package e2e

import (
	"fmt"
	"strings"
	"testing"

	"errand/pkg/messages"
)

// batches gives the last state of each batch of a request, by <request id>.<n>.
func (in *installation) batches(id string) map[string]messages.State {
	in.t.Helper()
	states := map[string]messages.State{}
	for _, e := range in.events("mail.batch.*." + id + ".*") {
		states[e.id()] = e.state()
	}
	return states
}

// wantBatchesMatchOracle compares the end of each batch with what the sandbox did.
func (in *installation) wantBatchesMatchOracle(id string, recipients, batches int) {
	in.t.Helper()
	served := in.served(recipients)[id]
	histories := in.histories("mail.batch.*." + id + ".*")
	if len(histories) != batches {
		in.t.Errorf("%d batches have a history, want %d", len(histories), batches)
	}
	for batch, history := range histories {
		e, err := finalEvent(history)
		if err == nil {
			err = checkBatch(in.t, e, served)
		}
		if err != nil {
			in.t.Errorf("%s: %v", batch, err)
		}
	}
}

// logRow is what a row of the sending log is known by.
type logRow struct {
	EnvelopeID string `json:"envelope_id"`
	To, From   string
}

// rowOf is the row that a delivery event is about.
func rowOf(t *testing.T, e event) logRow {
	t.Helper()
	return decode[struct{ Entry logRow }](t, e).Entry
}

// served is how often the sandbox took each recipient of the messages made by message,
// by request and number.
func (in *installation) served(recipients int) map[string][]int {
	in.t.Helper()
	out := map[string][]int{}
	for _, r := range in.oracle().Mail.ByRecipient {
		name, _, _ := strings.Cut(r.Recipient, "@")
		at := strings.LastIndexByte(name, '-')
		id, n := name[:at], 0
		if _, err := fmt.Sscan(name[at+1:], &n); err != nil || r.Subject != "story "+id {
			in.t.Fatalf("the sandbox served %s for %q", r.Recipient, r.Subject)
		}
		if out[id] == nil {
			out[id] = make([]int, recipients)
		}
		out[id][n] += r.Count
	}
	return out
}

// checkBatch compares the end of a batch with how often each recipient of its request
// was served: accepted is the number reported, refused is nobody, and uncertain is anything.
func checkBatch(t *testing.T, e event, served []int) error {
	t.Helper()
	b := decode[messages.BatchBody](t, e)
	got := 0
	if served != nil {
		got = sum(served[b.First : b.First+b.Count])
	}
	switch state := e.state(); {
	case state == messages.Accepted && b.Accepted != nil && *b.Accepted == got:
	case state == messages.Refused && got == 0:
	case state == messages.Uncertain:
	default:
		return fmt.Errorf("batch is %s, %d of %d were served: %s", state, got, b.Count, e.Raw)
	}
	return nil
}

func sum(numbers []int) (total int) {
	for _, n := range numbers {
		total += n
	}
	return total
}

// counts are those of a summary.
func counts(s messages.SummaryBody) string {
	return fmt.Sprintf("%d of %d: %d delivered, %d deferred, %d bounced, %d unknown, %d queued, final %t",
		s.Accepted, s.Recipients, s.Delivered, s.Deferred, s.Bounced, s.Unknown, s.Queued, s.Final)
}
