package messages

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"errand/internal/wire"
)

// plain is a request with its recipients in one form: their JSON may be written in
// several ways.
func plain(request any) any {
	if r, ok := request.(SendRequest); ok {
		r.To = Recipients(slices.Collect(r.Addresses())...)
		return r
	}
	return request
}

// producesWhatItReads marshals a request that was decoded from body and decodes it again.
func producesWhatItReads(t *testing.T, kind string, body []byte, request any, fingerprint string) {
	t.Helper()
	produced, err := json.Marshal(request)
	if err != nil {
		t.Fatalf("%s: %s: %v", kind, body, err)
	}
	again, meta, err := decoders[kind](produced)
	if diff := cmp.Diff(plain(request), plain(again)); err != nil || diff != "" {
		t.Fatalf("%s: %s goes out as %s: %v %s", kind, body, produced, err, diff)
	}
	twice, err := json.Marshal(again)
	if err != nil || !bytes.Equal(produced, twice) {
		t.Fatalf("%s: %s goes out as %s, then as %s, %v", kind, body, produced, twice, err)
	}
	if cmp.Equal(exact(t, body), exact(t, produced)) && meta.Fingerprint != fingerprint {
		t.Fatalf("%s: %s and %s say the same and have two fingerprints", kind, body, produced)
	}
}

// exact is a JSON object with its numbers as they are written.
func exact(t *testing.T, body []byte) (members map[string]any) {
	t.Helper()
	in := json.NewDecoder(bytes.NewReader(body))
	in.UseNumber()
	if err := in.Decode(&members); err != nil {
		t.Fatal(err)
	}
	delete(members, "request_id")
	return members
}

func TestAProducedRequestIsReadAsItWasFilled(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		enroll, send := randomEnroll(r), randomSend(r)
		transactions := TransactionsRequest{maybe(r, randomID), maybe(r, randomLine), maybe(r, randomLine), maybe(r, randomLine),
			maybe(r, randomEmail), maybe(r, randomCount)}
		account := AccountRequest{maybe(r, randomID)}
		for kind, request := range map[string]any{"enroll": enroll, "send": send, "transactions": transactions, "account": account} {
			body, err := json.Marshal(request)
			if err != nil {
				t.Fatalf("%s: %+v: %v", kind, request, err)
			}
			got, _, err := decoders[kind](body)
			switch want := request.(type) {
			case EnrollRequest:
				want.OnUnknown = filled(want.OnUnknown, OnUnknownReport)
				request = want
			case SendRequest:
				want.OnUnknown = filled(want.OnUnknown, OnUnknownReport)
				request = want
			}
			if diff := cmp.Diff(plain(request), plain(got)); err != nil || diff != "" {
				t.Fatalf("%s: %s: %v (-want +got):\n%s", kind, body, err, diff)
			}
		}
	}
}

func filled(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func TestEmptyOptionalFieldsAreLeftOut(t *testing.T) {
	for _, c := range []struct{ request, want any }{
		{EnrollRequest{}, needed(enrollFields)}, {SendRequest{}, needed(sendFields)},
		{TransactionsRequest{}, needed(transactionsFields)}, {AccountRequest{}, needed(accountFields)},
	} {
		if diff := cmp.Diff(c.want, producedNames(t, c.request)); diff != "" {
			t.Errorf("%T (-want +got):\n%s", c.request, diff)
		}
	}
}

func TestEveryFieldOfARequestCanBeProduced(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	enroll, send := map[string]bool{}, map[string]bool{}
	for range 100 {
		for _, name := range producedNames(t, randomEnroll(r)) {
			enroll[name] = true
		}
		for _, name := range producedNames(t, randomSend(r)) {
			send[name] = true
		}
	}
	for _, c := range []struct{ got, want []string }{
		{slices.Sorted(maps.Keys(enroll)), namesOf(enrollFields)},
		{slices.Sorted(maps.Keys(send)), namesOf(sendFields)},
		{producedNames(t, TransactionsRequest{"a", "b", "3", "d", "e@f", 6}), namesOf(transactionsFields)},
		{producedNames(t, AccountRequest{"a"}), namesOf(accountFields)},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

func TestTheSameInstantIsProducedInOneForm(t *testing.T) {
	utc := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, at := range []time.Time{utc, utc.In(time.FixedZone("", 8*3600)), utc.In(time.FixedZone("", 61))} {
		for _, request := range []any{EnrollRequest{GiveUpAt: at}, &SendRequest{GiveUpAt: at}} {
			body, err := json.Marshal(request)
			if err != nil || !strings.Contains(string(body), `"give_up_at":"2026-01-02T03:04:05Z"`) {
				t.Errorf("%s: got %s, %v", at, body, err)
			}
		}
	}
}

func TestAnAmountIsProducedDigitByDigit(t *testing.T) {
	for amount, want := range map[json.Number]json.Number{"100.50": "100.5", "5.00": "5", "30000": "30000", "29999.99": "29999.99"} {
		var r EnrollRequest
		if err := json.Unmarshal([]byte(enrollRequired), &r); err != nil {
			t.Fatal(err)
		}
		r.Amount = amount
		body, err := json.Marshal(r)
		if err != nil || !bytes.Contains(body, []byte(`"amount":`+amount+`,`)) {
			t.Fatalf("%s: got %s, %v", amount, body, err)
		}
		if got, _, err := Decode[EnrollRequest](body); err != nil || got.Amount != want {
			t.Errorf("%s: got %s, %v", amount, got.Amount, err)
		}
	}
}

func namesOf[R any](fields []field[R]) (names []string) {
	for _, f := range fields {
		names = append(names, f.name)
	}
	return names
}

func needed[R any](fields []field[R]) []string {
	return namesOf(slices.DeleteFunc(slices.Clone(fields), func(f field[R]) bool { return f.need == optional }))
}

func producedNames(t *testing.T, request any) []string {
	t.Helper()
	body, err := json.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(members))
}

func maybe[V any](r *rand.Rand, random func(*rand.Rand) V) (v V) {
	if r.IntN(3) > 0 {
		v = random(r)
	}
	return v
}

func text(r *rand.Rand, alphabet string, least, most int) string {
	letters, b := []rune(alphabet), strings.Builder{}
	for range least + r.IntN(most-least+1) {
		b.WriteRune(letters[r.IntN(len(letters))])
	}
	return b.String()
}

func randomID(r *rand.Rand) string { return "id-" + text(r, "abcXYZ019_-", 0, 60) }
func randomLine(r *rand.Rand) string {
	return "x" + text(r, "aB1 \"\\/<>&'é漢😀,;\u00a0\ufffd", 0, 40) + "y"
}
func randomText(r *rand.Rand) string { return randomLine(r) + text(r, "\n\t\r\u2028 <b>{}", 0, 40) }
func randomEmail(r *rand.Rand) string {
	return text(r, "abcXYZ", 1, 9) + "+b@" + text(r, "ab", 1, 9) + ".example"
}
func randomURL(r *rand.Rand) string {
	return "https://shop.example/" + text(r, "ab/?=&", 0, 20)
}
func randomCount(r *rand.Rand) int { return 1 + r.IntN(999999999) }
func randomNumber(r *rand.Rand) json.Number {
	return json.Number(fmt.Sprint(randomCount(r)))
}
func randomDate(r *rand.Rand) string { return randomTime(r).Format(time.DateOnly) }
func randomTime(r *rand.Rand) time.Time {
	return time.Unix(r.Int64N(4e9), r.Int64N(1e9)).In(time.FixedZone("", r.IntN(86400)-43200))
}

func randomDigits(r *rand.Rand) json.RawMessage {
	if r.IntN(2) == 0 {
		return json.RawMessage(randomNumber(r))
	}
	return Digits(text(r, "0123456789", 1, wire.MaxDigits))
}

func randomEnroll(r *rand.Rand) EnrollRequest {
	amounts := []json.Number{"5", "30000", "100.5", "29999.99", json.Number(fmt.Sprint(5 + r.IntN(29000)))}
	return EnrollRequest{
		RequestID: maybe(r, randomID), OnUnknown: []string{"", OnUnknownRetry, OnUnknownReport}[r.IntN(3)], GiveUpAt: maybe(r, randomTime),
		NotBefore: maybe(r, randomTime),
		Enrollment: Enrollment{
			PortalKey: maybe(r, randomLine), OrderNumber: randomLine(r), Amount: amounts[r.IntN(len(amounts))], PayerIDType: randomNumber(r),
			PayerID:   randomDigits(r),
			PayerName: randomLine(r), PayerEmail: randomEmail(r), PayerTelephoneNumber: randomDigits(r), PayerBankCode: maybe(r, randomLine),
			PayerBankCodeHashed: maybe(r, randomLine), FrequencyMode: randomLine(r), MaxFrequency: maybe(r, randomNumber),
			ApplicationReason: randomLine(r),
			EffectiveDate:     maybe(r, randomDate), ExpiryDate: maybe(r, randomDate), Metadata: maybe(r, randomText),
			ReturnURL:  maybe(r, randomURL),
			SuccessURL: maybe(r, randomURL), FailedURL: maybe(r, randomURL), MaintenanceURL: maybe(r, randomURL),
			TerminationURL: maybe(r, randomURL),
			LinkExpiredAt:  maybe(r, func(r *rand.Rand) string { return randomTime(r).Format(time.DateTime) }),
			PlatformID:     maybe(r, randomLine), Checksum: maybe(r, randomLine),
		},
	}
}

func randomSend(r *rand.Rand) SendRequest {
	s := SendRequest{
		RequestID: maybe(r, randomID), OnUnknown: []string{"", OnUnknownReport, OnUnknownResend}[r.IntN(3)], GiveUpAt: maybe(r, randomTime),
		NotBefore: maybe(r, randomTime),
		From:      maybe(r, randomEmail), ReplyTo: maybe(r, randomEmail), UnsubscribeLink: maybe(r, randomURL), Subject: randomLine(r),
		Content: randomText(r), AsHTML: r.IntN(2), Suppress: maybe(r, func(r *rand.Rand) *bool { return new(r.IntN(2) == 0) }),
	}
	for i := range r.IntN(3) {
		if s.Headers == nil {
			s.Headers = map[string]string{}
		}
		s.Headers[fmt.Sprintf("X-%d", i)] = randomLine(r)
	}
	if r.IntN(4) == 0 {
		s.ToObject = &ObjectRef{Bucket: "lists", Name: randomLine(r), Digest: someDigest}
		return s
	}
	addresses := []string{randomEmail(r), `"A, <B>" <` + randomEmail(r) + `>`, randomLine(r)}
	s.To = Recipients(addresses[:1+r.IntN(3)]...)
	return s
}

func TestAListIsReadAsItWasMade(t *testing.T) {
	want := []string{"a@b.example", `"C, D & <E>" <c@d.example>`, "é@ü.example"}
	r := SendRequest{To: Recipients(want...)}
	if diff := cmp.Diff(want, slices.Collect(r.Addresses())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if Recipients() != nil {
		t.Error("a list of nobody is a list")
	}
}
