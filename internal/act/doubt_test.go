package act_test

import (
	"slices"
	"testing"

	"errand/internal/act"
	"errand/pkg/messages"
)

// A message that could not be planned any more lists no batch in its outcome: that is not to say
// that all were accepted.
func TestAnOutcomeThatListsNoBatchDoesNotSayThatAllWereAccepted(t *testing.T) {
	d := newDesk(t)
	const fields = `,"reason":"interrupted","recipients":4,"batches":2`
	d.ended(messages.Send, "purged", mail, messages.Uncertain, fields)
	if got := d.plan("purged")[0]; got.Class != act.CannotRun {
		t.Errorf("nothing says how it was begun: %s (%s)", got.Class, got.Says)
	}
	d.put("mail.send.started.shifted", `{"request_id":"shifted","batches":3}`)
	d.put("mail.batch.accepted.shifted.1", `{"batch":1}`)
	d.put("mail.batch.refused.shifted.2", `{"batch":2}`)
	d.ended(messages.Send, "shifted", mail, messages.Uncertain, fields)
	if got := d.plan("shifted")[0]; got.Class != act.Twice || !slices.Equal(got.Batches, []int{2}) || !slices.Equal(got.Unknown, []int{3}) {
		t.Errorf("begun with three batches: %s (%s) %v %v", got.Class, got.Says, got.Batches, got.Unknown)
	}
}
