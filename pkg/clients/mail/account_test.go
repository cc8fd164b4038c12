package mail

import (
	"encoding/json"
	"errors"
	"testing"

	"errand/pkg/clients"

	"github.com/google/go-cmp/cmp"
)

func TestTheAccountIsReadAsTheDocumentShows(t *testing.T) {
	want := Account{
		Organisation: "Test Organisation", Email: "owner@example.test", SMTPUsername: "test-smtp",
		LimitQuota: 10000, TotalUsage: 100, CreditBalance: 9900,
	}
	suspended := want
	suspended.Suspended, suspended.TotalUsage, suspended.CreditBalance = true, 10000, 0
	for fixture, want := range map[string]Account{"user.response.json": want, "user.response.suspended.json": suspended} {
		f := newFake(t, 200, golden(t, fixture))
		got, err := client(t, f, false).Account(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var whole struct{ Data json.RawMessage }
		if err := json.Unmarshal(golden(t, fixture), &whole); err != nil {
			t.Fatal(err)
		}
		want.Raw = whole.Data
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", fixture, diff)
		}
		if diff := cmp.Diff([]arrived{{"GET /api/v0/user", sentHeader, ""}}, f.arrived); diff != "" {
			t.Errorf("request (-want +got):\n%s", diff)
		}
	}
}

func TestAnAccountOfOddTypesIsStillRead(t *testing.T) {
	f := newFake(t, 200,
		[]byte(`{"error":false,"data":{"limit_quota":"unlimited","organisation":7,"suspended":1,"credit_balance":"-5","later":1}}`))
	got, err := client(t, f, false).Account(t.Context())
	if err != nil || !got.Suspended || got.CreditBalance != -5 || got.LimitQuota != 0 {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestAnAccountThatIsNoneIsABadAnswer(t *testing.T) {
	for _, body := range []string{`{"error":false}`, `{"error":false,"data":null}`, `{"error":false,"data":[]}`, `{"data":{}}`, `{`} {
		f := newFake(t, 200, []byte(body))
		_, err := client(t, f, false).Account(t.Context())
		var e *clients.Error
		if !errors.As(err, &e) || e.Reason != clients.ReasonBadAnswer || e.Operation != "account" {
			t.Errorf("%s: got %v, want bad_answer", body, err)
		}
	}
}
