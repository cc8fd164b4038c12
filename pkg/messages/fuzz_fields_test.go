package messages

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/big"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"errand/internal/wire"
)

// hostile are values that have broken readers of JSON, of addresses and of headers.
var hostile = []string{`""`, "null", "0", "-0", "1e999", "1E-999", "0.1e+1", "9223372036854775808", "true", "[]", "{}", `[[]]`,
	`{"a":{"a":1}}`, `"a\u0000b"`, `"a\r\nBcc: b@c"`, `"\u2028"`, `"\u202e\u200b"`, `"\ud800"`, `"\udc00\ud800"`,
	`"a@b"`, `"A <a@b>"`, `"a@b, c@d"`, `"100.50"`, "100.001", "30000.01", `"0100"`, `"2026-02-30"`, `"2026-02-28"`,
	`"9999-12-31T23:59:59-23:59"`, `"0000-01-01T00:00:00+23:59"`, `"https://a/b?c"`, `"mailto:a@b"`, `{"X-A":"1","x-a":"2"}`,
	`{"X\r\nY":"1"}`, `["a@b",""]`,
	`{"bucket":"b","name":"n","digest":"SHA-256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU="}`, `"report"`, "1", `"1"`, `"７"`}

// FuzzField puts one value into one field of a request that is good otherwise: nothing
// but that field is ever named; what is accepted keeps every limit.
func FuzzField(f *testing.F) {
	for _, value := range hostile {
		for i := range enrollFields {
			f.Add(byte(i), byte(0), []byte(value))
		}
		for i := range sendFields {
			f.Add(byte(i), byte(1), []byte(value))
		}
	}
	f.Fuzz(func(t *testing.T, field, kind byte, value []byte) {
		if !json.Valid(value) || !utf8.Valid(value) {
			return
		}
		if kind%2 == 0 {
			name := enrollFields[int(field)%len(enrollFields)].name
			body := replaced(t, enrollSample, name, value)
			r, meta, err := Decode[EnrollRequest](body)
			onlyNamed(t, body, err, name)
			if err == nil {
				keepsLimits(t, body, r)
				producesWhatItReads(t, "enroll", body, r, meta.Fingerprint)
			}
			return
		}
		name := sendFields[int(field)%len(sendFields)].name
		good := sendRequired
		if name == "to_object" {
			good = sendObject
		}
		body := replaced(t, good, name, value)
		r, meta, err := Decode[SendRequest](body)
		onlyNamed(t, body, err, name)
		if err == nil {
			messageKeepsLimits(t, body, r)
			producesWhatItReads(t, "send", body, r, meta.Fingerprint)
		}
	})
}

// replaced is the object good with one member more, or another.
func replaced(t *testing.T, good, name string, value []byte) []byte {
	t.Helper()
	members := map[string]json.RawMessage{}
	if err := json.Unmarshal([]byte(good), &members); err != nil {
		t.Fatal(err)
	}
	delete(members, name)
	rest, err := json.Marshal(members)
	if err != nil {
		t.Fatal(err)
	}
	body := append(bytes.TrimSuffix(rest, []byte("}")), `,"`+name+`":`...)
	return append(append(body, value...), '}')
}

func onlyNamed(t *testing.T, body []byte, err error, name string) {
	t.Helper()
	var invalid *Invalid
	if err == nil {
		return
	}
	if !errors.As(err, &invalid) {
		t.Fatalf("%s: %T", body, err)
	}
	for field := range invalid.Fields {
		// A nested object with more faults than are listed has one under body; without
		// one list there must be the other.
		if field != name && field != "body" && !(name == "to" || name == "to_object") {
			t.Fatalf("%s: %v", body, invalid)
		}
	}
}

// keepsLimits holds an accepted enrollment to the limits, and reads it once more as it
// goes to the upstream.
func keepsLimits(t *testing.T, body []byte, r EnrollRequest) {
	t.Helper()
	amount, ok := new(big.Rat).SetString(string(r.Amount))
	if !ok || amount.Cmp(big.NewRat(5, 1)) < 0 || amount.Cmp(big.NewRat(30000, 1)) > 0 ||
		!new(big.Rat).Mul(amount, big.NewRat(100, 1)).IsInt() || strings.ContainsAny(string(r.Amount), "eE+-") {
		t.Fatalf("%s: amount %s", body, r.Amount)
	}
	for _, line := range []string{r.OrderNumber, r.PayerName, r.PayerEmail, r.ApplicationReason, r.PayerBankCode, r.PortalKey, r.Checksum,
		r.PlatformID, r.ReturnURL, r.FailedURL, r.EffectiveDate, r.LinkExpiredAt} {
		if utf8.RuneCountInString(line) > wire.MaxURL || strings.ContainsFunc(line, wire.IsControl) || !utf8.ValidString(line) {
			t.Fatalf("%s: %q", body, line)
		}
	}
	if y := r.GiveUpAt.Year(); y < 0 || y > 9999 || r.OnUnknown != OnUnknownRetry && r.OnUnknown != OnUnknownReport || r.RequestID != "" &&
		!ValidID(r.RequestID) {
		t.Fatalf("%s: %+v", body, r)
	}
	sent, err := json.Marshal(r.Enrollment)
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	again, _, err := Decode[EnrollRequest](sent)
	if diff := cmp.Diff(r.Enrollment, again.Enrollment); err != nil || diff != "" {
		t.Fatalf("%s goes out as %s: %v %s", body, sent, err, diff)
	}
}

func messageKeepsLimits(t *testing.T, body []byte, r SendRequest) {
	t.Helper()
	for _, line := range []string{r.Subject, r.From, r.ReplyTo, r.UnsubscribeLink} {
		if strings.ContainsFunc(line, wire.IsControl) || !utf8.ValidString(line) || utf8.RuneCountInString(line) > wire.MaxURL {
			t.Fatalf("%s: %q", body, line)
		}
	}
	low := map[string]bool{}
	for name, header := range r.Headers {
		if low[strings.ToLower(name)] || strings.ContainsAny(name, " :\r\n") || strings.EqualFold(name, "bcc") ||
			strings.ContainsFunc(header, wire.IsControl) || header == "" || len(name) > wire.MaxHeaderName {
			t.Fatalf("%s: header %q: %q", body, name, header)
		}
		low[strings.ToLower(name)] = true
	}
	if strings.Contains(r.Content, "\x00") || r.AsHTML != 0 && r.AsHTML != 1 || (r.To == nil) == (r.ToObject == nil) ||
		len(r.Headers) > wire.MaxHeaders {
		t.Fatalf("%s: %+v", body, r)
	}
	if o := r.ToObject; o != nil && (o.Bucket == "" || !wire.IsWord(o.Bucket) || o.Name == "" || canonicalDigest(o.Digest) != o.Digest) {
		t.Fatalf("%s: %+v", body, *o)
	}
}

// FuzzValuesStayOutOfErrors puts a text into a field of every request, alone and within
// an array or an object.
func FuzzValuesStayOutOfErrors(f *testing.F) {
	for i, s := range []string{"", "a@b", "1", "5.001", "https://x", "\n", "<a@b>", "2026-02-30", "\u2028", strings.Repeat("9", 400)} {
		f.Add(byte(i*5), byte(i), s)
	}
	names := []string{"unknown", "status", "max_pages", "exchange_reference_number"}
	for _, fl := range enrollFields {
		names = append(names, fl.name)
	}
	for _, fl := range sendFields {
		names = append(names, fl.name)
	}
	f.Fuzz(func(t *testing.T, field, shape byte, text string) {
		const mark = "zq7Marked"
		secret, err := json.Marshal(mark + text)
		if err != nil {
			t.Fatal(err)
		}
		raw := []string{"%", "[%]", `{"name":%,"Bcc":%,"X":%}`, `{"bucket":[%],"digest":%}`}[shape%4]
		body := []byte(`{"` + names[int(field)%len(names)] + `":` + strings.ReplaceAll(raw, "%", string(secret)) + `}`)
		for kind, decode := range decoders {
			if _, _, err := decode(body); err != nil && strings.Contains(err.Error(), mark) {
				t.Fatalf("%s: %s: %v", kind, body, err)
			}
		}
		if _, err := ParseRecipient(mark + text); err != nil && strings.Contains(err.Error(), mark) {
			t.Fatal(err)
		}
	})
}

// FuzzEventBody reads anything back as every body that a program reads back: what can be
// read can be written, and is the same when it is read again; no error quotes it.
func FuzzEventBody(f *testing.F) {
	for _, value := range hostile {
		f.Add([]byte(value))
		for _, field := range []string{"at", "deadline", "not_before", "attempt", "batch_size", "accepted", "max_frequency", "message", "reason",
			"complete_through", "unknown", "invalid", "secret", "until", "outcome", "was", "batches", "records"} {
			f.Add([]byte(`{"` + field + `":` + value + `}`))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, fresh := range []func() Body{
			func() Body { return &EnrollStarted{} }, func() Body { return &DeferredBody{} }, func() Body { return &SendStarted{} },
			func() Body { return &BatchBody{} },
			func() Body { return &FailedBody{} }, func() Body { return &SendOutcome{} }, func() Body { return &Watermark{} },
			func() Body { return &SendResolved{} }, func() Body { return &SummaryBody{} },
			func() Body { return &ReopenedBody{} }, func() Body { return &TransactionsPage{} },
		} {
			body := fresh()
			if err := DecodeEvent(data, body); err != nil {
				if !errors.Is(err, errEvent) || err.Error() != errEvent.Error() {
					t.Fatalf("%q: the error is %q", data, err)
				}
				continue
			}
			e := Event{Operation: Enroll, State: Started, ID: "r1", Body: body}
			text, err := e.Encode()
			if err != nil {
				t.Fatalf("%q as %T: %v", data, body, err)
			}
			back := fresh()
			if err := DecodeEvent(text, back); err != nil {
				t.Fatalf("%q as %T becomes %q: %v", data, body, text, err)
			}
			e.Body = back
			if again, err := e.Encode(); err != nil || !bytes.Equal(text, again) {
				t.Fatalf("%q as %T becomes %q, then %q, %v", data, body, text, again, err)
			}
		}
	})
}

var reservedID = regexp.MustCompile(`^(MANDATE_REQUESTS|MANDATE_EVENTS|MAIL_REQUESTS|MAIL_EVENTS|MAIL_DELIVERIES|DEAD_LETTERS|RATE_LEASES|AUDIT|KEYS)-[0-9]+$`)

// FuzzID checks what a request id must be to be a token of a subject.
func FuzzID(f *testing.F) {
	for _, id := range []string{"", "a", ".", "*", ">", "a.b", "a b", "ü", "\xff", "\u202e", "-", "_", "unmatched", "AUDIT-1",
		"MAIL_EVENTS-12", strings.Repeat("x", 64), strings.Repeat("x", 65)} {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, id string) {
		plain := id != "" && len(id) <= 64
		for _, r := range id {
			plain = plain && strings.ContainsRune("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-", r)
		}
		reserved := id == "unmatched" || reservedID.MatchString(id)
		if ValidID(id) != (plain && !reserved) {
			t.Fatalf("%q: %v", id, ValidID(id))
		}
		if !plain {
			return
		}
		// Events go by the programs' own ids as well.
		subject := Enroll.Subject(Started, id)
		if StateOf(subject) != Started || strings.Count(subject, ".") != 3 || strings.ContainsAny(subject, "*> \t\r\n") {
			t.Fatalf("%q makes the subject %q", id, subject)
		}
		e := Event{Operation: Batch, State: Accepted, ID: BatchID(id, 7), Body: &BatchBody{Common: Common{At: Time{time.Unix(0, 0)}}}}
		if e.RequestID() != id {
			t.Fatalf("%q comes back as %q", id, e.RequestID())
		}
	})
}
