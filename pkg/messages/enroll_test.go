package messages

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// enrollSample is a usual request.
const enrollSample = `{"request_id":"a-1","order_number":"DD001","amount":"100.50","payer_id_type":1,
"payer_id":"900101011234","payer_name":"Test Payer","payer_email":"payer@example.test",
"payer_telephone_number":"60190000000","frequency_mode":"MT","max_frequency":9,
"application_reason":"Enrollment for DD001","effective_date":"2026-01-02",
"return_url":"https://shop.example/return","success_url":"https://shop.example/ok?order=1"}`

const enrollRequired = `{"order_number":"DD001","amount":100,"payer_id_type":1,"payer_id":900101011234,
"payer_name":"Test Payer","payer_email":"payer@example.test","payer_telephone_number":60190000000,
"frequency_mode":"MT","application_reason":"Enrollment"}`

// with is the object with one member put to a raw value.
func with(t *testing.T, object, name, raw string) []byte {
	t.Helper()
	var members map[string]json.RawMessage
	if err := json.Unmarshal([]byte(object), &members); err != nil {
		t.Fatal(err)
	}
	members[name] = json.RawMessage(raw)
	data, err := json.Marshal(members)
	if err != nil {
		t.Fatalf("%s: %s: %v", name, raw, err)
	}
	return data
}

func TestAnEnrollmentIsReadFieldForField(t *testing.T) {
	got, meta, err := Decode[EnrollRequest]([]byte(`{"request_id":"a-1","on_unknown":"report","give_up_at":"2026-01-02T11:04:05+08:00",
		"portal_key":"pk","order_number":"DD/001 é","amount":100.50,"payer_id_type":"3","payer_id":"0012","payer_name":"A \"B\" <C>",
		"payer_email":"payer@example.test","payer_telephone_number":60190000000,"payer_bank_code":"B1","payer_bank_code_hashed":"h",
		"frequency_mode":"XX","max_frequency":12,"application_reason":"why","effective_date":"2028-02-29","expiry_date":"2027-12-31",
		"metadata":"{\n\t\"a\": 1}","return_url":"https://shop.example/r","success_url":"http://shop.example","failed_url":"https://shop.example:8443/f%20g",
		"maintenance_url":"https://[::1]/m","termination_url":"HTTPS://shop.example/t","link_expired_at":"2026-01-02 23:59:59",
		"platform_id":"p","checksum":"c"}`))
	want := EnrollRequest{
		RequestID: "a-1", OnUnknown: "report", GiveUpAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Enrollment: Enrollment{
			PortalKey: "pk", OrderNumber: "DD/001 é", Amount: "100.5", PayerIDType: "3", PayerID: json.RawMessage(`"0012"`),
			PayerName: `A "B" <C>`, PayerEmail: "payer@example.test", PayerTelephoneNumber: json.RawMessage(`60190000000`),
			PayerBankCode: "B1", PayerBankCodeHashed: "h", FrequencyMode: "XX", MaxFrequency: "12", ApplicationReason: "why",
			EffectiveDate: "2028-02-29", ExpiryDate: "2027-12-31", Metadata: "{\n\t\"a\": 1}", ReturnURL: "https://shop.example/r",
			SuccessURL: "http://shop.example", FailedURL: "https://shop.example:8443/f%20g", MaintenanceURL: "https://[::1]/m",
			TerminationURL: "HTTPS://shop.example/t", LinkExpiredAt: "2026-01-02 23:59:59", PlatformID: "p", Checksum: "c",
		},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil || meta.RequestID != "a-1" {
		t.Errorf("%v, %+v (-want +got):\n%s", err, meta, diff)
	}
}

func TestWhatHasADefaultMayBeLeftOut(t *testing.T) {
	got, _, err := Decode[EnrollRequest]([]byte(enrollRequired))
	if err != nil || got.OnUnknown != OnUnknownReport || got.MaxFrequency != "" || got.EffectiveDate != "" || got.LinkExpiredAt != "" ||
		!got.GiveUpAt.IsZero() {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, fl := range enrollFields {
		for _, raw := range []string{`null`, `""`, `{}`, `[ ]`} {
			_, _, err := Decode[EnrollRequest](with(t, enrollRequired, fl.name, raw))
			want := map[string][]string(nil)
			if strings.Contains(enrollRequired, `"`+fl.name+`"`) {
				want = map[string][]string{fl.name: {"is required"}}
			}
			if diff := cmp.Diff(want, faultsOf(t, err)); diff != "" {
				t.Errorf("%s %s (-want +got):\n%s", fl.name, raw, diff)
			}
		}
	}
}

func TestEveryFaultIsReportedNotOnlyTheFirst(t *testing.T) {
	_, _, err := Decode[EnrollRequest]([]byte(`{"amount":1,"payer_id":"x","payer_email":"no","typo":1,"return_url":"/r","give_up_at":"soon","effective_date":"2026-02-30"}`))
	want := map[string][]string{
		"amount": {"must be between 5.00 and 30000.00"}, "payer_id": {"must hold digits only"}, "payer_email": {"must be an email address alone"},
		"typo": {"is not a known field"}, "return_url": {"must be an absolute http or https URL"},
		"give_up_at":     {"must be a time with Z or an offset from UTC, such as 2026-01-02T15:04:05Z"},
		"effective_date": {"must be a date such as 2026-01-02"},
		"order_number":   {"is required"}, "payer_id_type": {"is required"}, "payer_name": {"is required"},
		"payer_telephone_number": {"is required"}, "frequency_mode": {"is required"}, "application_reason": {"is required"},
	}
	if diff := cmp.Diff(want, faultsOf(t, err)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAnAmountIsTakenDigitByDigit(t *testing.T) {
	for raw, want := range map[string]string{
		`5`: "5", `5.0`: "5", `5.00`: "5", `"5.00"`: "5", `100`: "100", `100.5`: "100.5", `100.50`: "100.5", `"100.50"`: "100.5",
		`100.05`:   "100.05",
		`"100.00"`: "100", `29999.99`: "29999.99", `30000`: "30000", `"30000.00"`: "30000", `"\u0035"`: "5", `10`: "10", `9.99`: "9.99",
	} {
		got, _, err := Decode[EnrollRequest](with(t, enrollRequired, "amount", raw))
		if err != nil || string(got.Amount) != want {
			t.Errorf("%s: got %q, %v, want %s", raw, got.Amount, err, want)
		}
	}
	const form, decimals, limits = "must be a plain decimal number such as 100 or 100.50", "must have at most two decimals",
		"must be between 5.00 and 30000.00"
	for raw, want := range map[string]string{
		`4.99`: limits, `0`: limits, `0.5`: limits, `30000.01`: limits, `30001`: limits, `100000`: limits, `"99999999999999999999"`: limits,
		`5.001`: decimals, `5.000`: decimals, `"100.999"`: decimals, `4.999`: decimals,
		`1e2`: form, `1E2`: form, `"1e2"`: form, `-100`: form, `"-100"`: form, `"+100"`: form, `"0100"`: form, `"0x64"`: form, `"NaN"`: form,
		`"Inf"`:  form,
		`"100."`: form, `".5"`: form, `"."`: form, `" 100"`: form, `"100 "`: form, `"1,000"`: form, `"1_000"`: form, `"100.5.0"`: form,
		`"100.-5"`: form, `"١٠٠"`: form, `-0`: form,
		`true`: "must be a number or a string of digits", `[100]`: "must be a number or a string of digits",
		`{"a":1}`: "must be a number or a string of digits",
	} {
		got, _, err := Decode[EnrollRequest](with(t, enrollRequired, "amount", raw))
		if diff := cmp.Diff(map[string][]string{"amount": {want}}, faultsOf(t, err)); diff != "" || got.Amount != "" {
			t.Errorf("%s: %q (-want +got):\n%s", raw, got.Amount, diff)
		}
	}
}

// The transaction list may show it without the space: then it would not be found again.
func TestAnOrderNumberWithASpaceAtAnEndIsRefusedNotTrimmed(t *testing.T) {
	want := map[string][]string{"order_number": {"must not begin or end with a space"}}
	for _, raw := range []string{`"DD001 "`, `" DD001"`, `"DD001\u2003"`} {
		got, _, err := Decode[EnrollRequest](with(t, enrollRequired, "order_number", raw))
		if diff := cmp.Diff(want, faultsOf(t, err)); diff != "" || got.OrderNumber != "" {
			t.Errorf("enroll %s: %q (-want +got):\n%s", raw, got.OrderNumber, diff)
		}
		listed, _, err := Decode[TransactionsRequest]([]byte(`{"order_number":` + raw + `}`))
		if diff := cmp.Diff(want, faultsOf(t, err)); diff != "" || listed.OrderNumber != "" {
			t.Errorf("transactions %s: %q (-want +got):\n%s", raw, listed.OrderNumber, diff)
		}
	}
}

func TestDigitsAreKeptAsTheyWereWritten(t *testing.T) {
	for _, name := range []string{"payer_id", "payer_telephone_number"} {
		for raw, want := range map[string]string{
			`0`: `0`, `12345678901234567890`: `12345678901234567890`, `"007"`: `"007"`, `"\u0030\u0031"`: `"01"`, `"0"`: `"0"`,
		} {
			got, _, err := Decode[EnrollRequest](with(t, enrollRequired, name, raw))
			text := got.PayerID
			if name != "payer_id" {
				text = got.PayerTelephoneNumber
			}
			if err != nil || string(text) != want {
				t.Errorf("%s %s: got %s, %v, want %s", name, raw, text, err, want)
			}
		}
		for _, raw := range []string{`-1`, `1.0`, `1e3`, `"12a"`, `"+60"`, `"1 2"`, `"12\n"`, `true`, `[1]`, `"١"`, `"` +
			strings.Repeat("1", 101) + `"`} {
			_, _, err := Decode[EnrollRequest](with(t, enrollRequired, name, raw))
			if faults := faultsOf(t, err); len(faults) != 1 || len(faults[name]) != 1 {
				t.Errorf("%s %s: got %q", name, raw, faults)
			}
		}
	}
}

func TestRulesOfTheFieldsOfAnEnrollment(t *testing.T) {
	long := func(n int) string { return `"` + strings.Repeat("a", n) + `"` }
	url := func(n int) string { return `"https://shop.example/` + strings.Repeat("a", n-21) + `"` }
	for _, c := range []struct {
		fields    string
		good, bad []string
	}{
		{"payer_id_type", []string{`0`, `1`, `"5"`, `10`}, []string{`-1`, `1.5`, `"01"`, `"a"`, `true`, `1e1`, `1234567890`}},
		{"max_frequency", []string{`1`, `9`, `"12"`, `999999999`}, []string{`0`, `"0"`, `-9`, `9.0`, `"09"`, `"nine"`, `[9]`}},
		{"payer_email", []string{`"a@b.example"`, `"a+b.c@d-e.example"`, `"pelé@example.test"`, `"\"a b\"@example.test"`},
			[]string{`"a"`, `"@b"`, `"a@"`, `"A <a@b.example>"`, `"a@b.example, c@d.example"`, `" a@b.example"`, `"a@b.example "`,
				`"a..b@c.example"`, `"a@b.example\n"`, `1`, `["a@b.example"]`}},
		{"effective_date expiry_date", []string{`"2026-01-02"`, `"2028-02-29"`},
			[]string{`"2026-02-29"`, `"2026-13-01"`, `"2026-1-2"`, `"02-01-2026"`, `"2026-01-02T00:00:00Z"`, `"2026-01-02 "`, `20260102`,
				`"tomorrow"`}},
		{"link_expired_at", []string{`"2026-01-02 15:04:05"`},
			[]string{`"2026-01-02"`, `"2026-01-02T15:04:05"`, `"2026-01-02 24:00:00"`, `"2026-01-02 15:04:05.5"`, `"2026-01-02 5:04:05"`, `1`}},
		{"give_up_at", []string{`"2026-01-02T15:04:05Z"`, `"2026-01-02T15:04:05.123+08:00"`},
			[]string{`"2026-01-02"`, `"2026-01-02T5:04:05Z"`, `"2026-01-02T15:04:05,5Z"`, `"2026-01-02T15:04:05+24:00"`,
				`"2026-01-02T15:04:05+08:60"`, `"2026-01-02 15:04:05"`, `1767366245`, `"24h"`}},
		{"on_unknown", []string{`"retry"`, `"report"`}, []string{`"resend"`, `"conclude"`, `"Retry"`, `"x"`, `1`, `true`}},
		{"return_url success_url failed_url maintenance_url termination_url",
			[]string{`"https://shop.example"`, `"http://localhost:8080/a?b=c#d"`, `"https://u:p@shop.example/é"`, url(4096)},
			[]string{`"shop.example"`, `"//shop.example/"`, `"ftp://shop.example/"`, `"https://"`, `"https:///path"`, `"https:shop.example"`,
				`"https://shop.example/a b"`,
				`"javascript:alert(1)"`, `"https://shop.example/%zz"`, `"https://shop.example/\r\nX: y"`, `"https://a b.example/"`, `"https://:443/"`,
				url(4097), `1`, `{"url":"x"}`}},
		{"order_number", []string{long(255), `"` + strings.Repeat("é", 255) + `"`, `"DD 001"`},
			[]string{long(256), `"a\nb"`, `"  "`, `1`, `"DD001 "`, `" DD001"`, `"\u00a0DD001"`, `"DD001\u3000"`, `"\u0020a"`, `"\u2003"`}},
		{"payer_name payer_bank_code payer_bank_code_hashed frequency_mode application_reason platform_id portal_key checksum",
			[]string{`"x"`, `" x "`, long(1000), `"<é>"`}, []string{long(1001), `"a\rb"`, `"a\tb"`, `"a\u0000"`, `"a\u007f"`, `"a\u0085b"`,
				`"a\u2028b"`, `" "`, `1`, `true`, `["a"]`, `{"a":"b"}`}},
		{"metadata", []string{`"a\r\n\tb"`, long(65536)}, []string{long(65537), `"a\u0000"`, `{"a":1}`, `1`}},
	} {
		for name := range strings.FieldsSeq(c.fields) {
			for _, raw := range c.good {
				if _, _, err := Decode[EnrollRequest](with(t, enrollRequired, name, raw)); err != nil {
					t.Errorf("%s %.80s: got %v, want none", name, raw, err)
				}
			}
			for _, raw := range c.bad {
				_, _, err := Decode[EnrollRequest](with(t, enrollRequired, name, raw))
				if faults := faultsOf(t, err); len(faults) != 1 || len(faults[name]) == 0 {
					t.Errorf("%s %.80s: got %q, want one fault under %s", name, raw, faults, name)
				}
			}
		}
	}
}

func TestWrongTypesAreNamed(t *testing.T) {
	for name, want := range map[string]string{"payer_name": "must be a string", "return_url": "must be a string",
		"metadata": "must be a string", "on_unknown": "must be a string"} {
		_, _, err := Decode[EnrollRequest](with(t, enrollRequired, name, `7`))
		if faults := faultsOf(t, err); !slices.Equal(faults[name], []string{want}) {
			t.Errorf("%s: got %q, want %q", name, faults, want)
		}
	}
}

func TestAnInvalidRequestKeepsItsValidFields(t *testing.T) {
	got, _, err := Decode[EnrollRequest](with(t, enrollRequired, "amount", `1`))
	if err == nil || got.OrderNumber != "DD001" || got.Amount != "" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestARequestDoesNotLookAtItsBytesAgain(t *testing.T) {
	data := []byte(enrollSample)
	got, _, err := Decode[EnrollRequest](data)
	want, _ := json.Marshal(got)
	clear(data)
	if again, _ := json.Marshal(got); err != nil || string(again) != string(want) {
		t.Errorf("got %s, %v, want %s", again, err, want)
	}
}
