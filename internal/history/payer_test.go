package history

import (
	"encoding/json"
	"testing"
)

func TestWhatIsKeptOfARecordSaysNothingOfThePayer(t *testing.T) {
	for _, c := range []struct{ what, record, want string }{
		{"an enrollment", `{"payer_name":"Test Payer","payer_id_type":1,"payer_id":"900101011234","payer_email":"p@x.test","payer_telephone_number":"6019",
			"order_number":"DD1","amount":100.50,"application_type":"Enrollment","application_reason":"of Ann","frequency_mode":"MT","effective_date":"2026-01-02",
			"expiry_date":"2027-01-02","url":"https://x.test/1","metadata":"Ann","return_url":"https://y.test/?payer=Ann"}`,
			`{"amount":100.50,"effective_date":"2026-01-02","expiry_date":"2027-01-02","frequency_mode":"MT","order_number":"DD1","url":"https://x.test/1"}`},
		{"a transaction", `{"id":"TX-1","transaction_type":"Deduction","created_at":"2026-01-01 12:00:00","payer_name":"Ann","payer_bank_name":"B","order_number":"DD1",
			"currency":"MYR","amount":100,"status":3,"status_description":"of Ann","merchant":{"email":"m@x.test"},"portal":"P",
			"mandate":{"id":"MD-1","order_number":"DD1","frequency_mode":"MT","frequency_mode_label":"Monthly","amount":100,"status":3,"payer":"Ann"}}`,
			`{"amount":100,"created_at":"2026-01-01 12:00:00","currency":"MYR","mandate":{"amount":100,"frequency_mode":"MT","frequency_mode_label":"Monthly","order_number":"DD1","status":3},"order_number":"DD1","status":3,"transaction_type":"Deduction"}`},
		{"what hides in a known name", `{"amount":{"payer_name":"Ann"},"order_number":["Ann"],"url": {"a":"Ann"},"mandate":"Ann"}`, `{}`},
		{"no object", `"Ann"`, `{}`},
		{"a list", `[{"payer_name":"Ann"}]`, `{}`},
		{"nothing", ``, `{}`},
	} {
		if got := string(WithoutPayer(json.RawMessage(c.record))); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.what, got, c.want)
		}
	}
}
