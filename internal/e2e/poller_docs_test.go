package e2e

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"errand/pkg/messages"
)

// The examples of docs/use/deliveries.md are bodies as they are published: with each of their
// fields, and with no other.
func TestTheExamplesOfDeliveriesAreBodies(t *testing.T) {
	text, err := os.ReadFile("../../docs/use/deliveries.md")
	must(t, err)
	bodies := []any{&messages.DeliveryBody{}, &messages.SummaryBody{}, &messages.OverdueBody{}, &messages.SendResolved{}, &messages.Watermark{}}
	examples := strings.Split(string(text), "```json\n")[1:]
	if len(examples) != len(bodies) {
		t.Fatalf("%d examples, want %d", len(examples), len(bodies))
	}
	for i, body := range bodies {
		example, _, _ := strings.Cut(examples[i], "```")
		if err := messages.DecodeEvent([]byte(example), body); err != nil {
			t.Errorf("%T: %v", body, err)
			continue
		}
		written, err := json.Marshal(body)
		must(t, err)
		var want, got any
		must(t, errors.Join(json.Unmarshal([]byte(example), &want), json.Unmarshal(written, &got)))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%T, of the example (-) and as it is written (+):\n%s", body, diff)
		}
	}
}
