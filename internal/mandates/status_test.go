package mandates

import (
	"testing"

	"errand/pkg/messages"
)

// What is not known for certain to be the end of a mandate is not.
func TestAStatusDecidesOnlyWhereItIsKnown(t *testing.T) {
	for status, want := range map[string]messages.State{
		`3`: messages.Succeeded, `"3"`: messages.Succeeded, `" 3 "`: messages.Succeeded,
		`2`: messages.Failed, `4`: messages.Failed, `"5"`: messages.Failed,
		`0`: "", `1`: "", `6`: "", `77`: "", `-3`: "", `3.0`: "", `"3.0"`: "", `30`: "", `""`: "", `null`: "", `true`: "", `[3]`: "",
		`{"3":3}`: "",
	} {
		if got := ReadRecord([]byte(`{"status":` + status + `}`)).Decided(); got != want {
			t.Errorf("status %s: %q, want %q", status, got, want)
		}
	}
	if got := ReadRecord([]byte(`{"mandate":{"status":3}}`)).Decided(); got != "" {
		t.Errorf("the status of the mandate is taken for the record's: %q", got)
	}
}
