package mail

import (
	"encoding/json"
	"errors"
	"testing"

	"errand/pkg/clients"
	"errand/pkg/messages"

	"github.com/google/go-cmp/cmp"
)

func TestTheAccountIsReadAsTheServiceWroteIt(t *testing.T) {
	for _, fixture := range []string{"user.response.json", "user.response.suspended.json"} {
		f := newFake(t, 200, golden(t, fixture))
		got, err := client(t, f, false).Account(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var whole struct{ Data json.RawMessage }
		if err := json.Unmarshal(golden(t, fixture), &whole); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(whole.Data, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", fixture, diff)
		}
		if diff := cmp.Diff([]arrived{{"GET /api/v0/user", sentHeader, ""}}, f.arrived); diff != "" {
			t.Errorf("request (-want +got):\n%s", diff)
		}
	}
}

func TestAnAccountThatIsNoneIsABadAnswer(t *testing.T) {
	for _, body := range []string{`{"error":false}`, `{"error":false,"data":null}`, `{"error":false,"data":[]}`, `{"data":{}}`, `{`} {
		f := newFake(t, 200, []byte(body))
		_, err := client(t, f, false).Account(t.Context())
		var e *clients.Error
		if !errors.As(err, &e) || e.Reason != messages.ReasonBadAnswer || e.Operation != "account" {
			t.Errorf("%s: got %v, want bad_answer", body, err)
		}
	}
}
