package messages

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The tables of this file are the public interface, written out in full: what
// is changed here changes for everyone who publishes or subscribes.

func TestSubjectsAreThoseOfTheContract(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{Enroll.Requested(), "mandate.enroll.requested"},
		{Transactions.Requested(), "mandate.transactions.requested"},
		{Send.Requested(), "mail.send.requested"},
		{Account.Requested(), "mail.account.requested"},
		{Enroll.Subject(Started, "a-1"), "mandate.enroll.started.a-1"},
		{Enroll.Subject(Deferred, "a-1"), "mandate.enroll.deferred.a-1"},
		{Enroll.Subject(Succeeded, "a-1"), "mandate.enroll.succeeded.a-1"},
		{Enroll.Subject(Failed, "a-1"), "mandate.enroll.failed.a-1"},
		{Enroll.Subject(Uncertain, "a-1"), "mandate.enroll.uncertain.a-1"},
		{Enroll.Subject(Resolved, "a-1"), "mandate.enroll.resolved.a-1"},
		{Enroll.Subject(Reopened, "a-1"), "mandate.enroll.reopened.a-1"},
		{Transactions.Subject(Page, "q"), "mandate.transactions.page.q"},
		{Transactions.Subject(Listed, "q"), "mandate.transactions.listed.q"},
		{Send.Subject(Accepted, "m"), "mail.send.accepted.m"},
		{Send.Subject(Partial, "m"), "mail.send.partial.m"},
		{Send.Subject(Resolved, "m"), "mail.send.resolved.m"},
		{Send.Subject(Reopened, "m"), "mail.send.reopened.m"},
		{Batch.Subject(Refused, BatchID("m", 12)), "mail.batch.refused.m.12"},
		{Account.Subject(Reported, "u"), "mail.account.reported.u"},
		{Delivery.Subject(Delivered, Unmatched), "mail.delivery.delivered.unmatched"},
		{Delivery.Subject(Bounced, "m"), "mail.delivery.bounced.m"},
		{Delivery.Subject(Unknown, "m"), "mail.delivery.unknown.m"},
		{Delivery.Subject(Summary, "m"), "mail.delivery.summary.m"},
		{Log.Subject(Marked, ""), "mail.log.watermark"},
		{Enroll.Filter("a-1"), "mandate.enroll.*.a-1"},
		{Send.Filter("m"), "mail.send.*.m"},
		{Batch.Filter(BatchID("m", 3)), "mail.batch.*.m.3"},
	} {
		if c.got != c.want {
			t.Errorf("got %s, want %s", c.got, c.want)
		}
	}
}

func TestFinalStatesAreThoseOfTheContract(t *testing.T) {
	states := []State{
		Started, Deferred, Succeeded, Failed, Uncertain, Resolved, Accepted, Partial, Refused,
		Page, Listed, Reported, Delivered, Bounced, Unknown, Marked, Summary, Reopened, "requested", "",
	}
	finals := map[Operation][]State{
		Enroll:       {"succeeded", "failed", "uncertain", "resolved"},
		Transactions: {"failed", "listed"},
		Send:         {"failed", "uncertain", "resolved", "accepted", "partial"},
		Batch:        {"uncertain", "accepted", "refused"},
		Account:      {"failed", "reported"},
		Delivery:     nil,
		Log:          nil,
		"other":      nil,
	}
	for o, want := range finals {
		var got []State
		for _, s := range states {
			if s.Final(o) {
				got = append(got, s)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", o, got, want)
		}
	}
}

func TestReasonsAreThoseOfTheContract(t *testing.T) {
	got := Reasons
	want := []Reason{
		"invalid_request", "conflict", "cancelled", "refused", "unavailable", "busy", "held",
		"short_count", "no_answer", "bad_answer", "interrupted", "link_lost", "scheduled",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The first words are there in a zero body, those behind the bar only when filled.
var bodyFields = []struct {
	body   Body
	fields string
}{
	{&EnrollStarted{}, "deadline fingerprint order_number | max_frequency effective_date after_unknown"},
	{&DeferredBody{}, "reason message http_status not_before fingerprint | after_unknown held_count"},
	{&ReopenedBody{}, "by was fingerprint | why after_unknown batches batch_size"},
	{&EnrollSucceeded{}, "api_version order_number enrollment fingerprint | link_expired_at after_unknown"},
	{&FailedBody{}, "reason message http_status fields fingerprint | order_number conflicts_with after_unknown"},
	{&EnrollUncertain{}, "reason message order_number evidence fingerprint | after_unknown"},
	{&CallbackBody{}, "method bytes digest checksum | content_type query body body_encoding"},
	{&TransactionsPage{}, "page records total deadline more fingerprint |"},
	{&TransactionsListed{}, "pages total fingerprint |"},
	{&SendStarted{}, "deadline fingerprint recipients batches batch_size | suppressed secret"},
	{&SendOutcome{}, "recipients accepted batches duplicates invalid_count invalid fingerprint | " +
		"unsettled unsettled_count reason message http_status fields conflicts_with after_unknown"},
	{&BatchBody{}, "batch first count | deadline not_before accepted reason http_status message after_unknown held_count suppressed secret"},
	{&AccountReported{}, "account fingerprint |"},
	{&DeliveryBody{}, "event_id entry smtp match |"},
	{&SendResolved{}, "outcome by evidence fingerprint |"},
	{&EnrollResolved{}, "outcome by order_number evidence fingerprint |"},
	{&SummaryBody{}, "recipients accepted delivered deferred bounced unknown queued final complete_through |"},
	{&Watermark{}, "complete_through total_record new by | since scanned anchor"},
}

func TestBodiesHaveTheFieldsOfTheContract(t *testing.T) {
	for _, c := range bodyFields {
		fixed, more, _ := strings.Cut(c.fields, "|")
		always := append(strings.Fields(fixed), "request_id", "at", "attempt")
		if diff := cmp.Diff(sorted(always), keysOf(t, c.body)); diff != "" {
			t.Errorf("%T, zero (-want +got):\n%s", c.body, diff)
		}
		full := reflect.New(reflect.TypeOf(c.body).Elem())
		fill(full.Elem())
		all := append(always, append(strings.Fields(more), "abridged", "lane")...)
		if diff := cmp.Diff(sorted(all), keysOf(t, full.Interface().(Body))); diff != "" {
			t.Errorf("%T, full (-want +got):\n%s", c.body, diff)
		}
	}
}

func TestPartsOfBodiesHaveTheFieldsOfTheContract(t *testing.T) {
	for _, c := range []struct {
		part any
		want string
	}{
		{InvalidAddress{}, `{"address":"","reason":""}`},
		{Unsettled{}, `{"batch":0,"first":0,"count":0,"state":"","reason":""}`},
		{Unsettled{1, 2, 3, Refused, ReasonRefused, 422, "no"},
			`{"batch":1,"first":2,"count":3,"state":"refused","reason":"refused","http_status":422,"message":"no"}`},
		{SMTP{}, `{"code":0,"enhanced":""}`},
		{Match{Confidence: MatchNone}, `{"confidence":"none"}`},
		{Match{MatchAmbiguous, 2, []string{"a", "b"}}, `{"confidence":"ambiguous","batch":2,"candidates":["a","b"]}`},
		{BatchEvidence{1, 5, 2}, `{"batch":1,"count":5,"seen":2}`},
		{[]string{BySendingLog, ByTransactionList, ByCorrection}, `["sending_log","transaction_list","correction"]`},
		{PriorOutcome{State: Partial}, `{"state":"partial"}`},
		{PriorOutcome{Failed, ReasonRefused}, `{"state":"failed","reason":"refused"}`},
		{[]Confidence{MatchExact, MatchUnique}, `["exact","unique"]`},
	} {
		got, err := json.Marshal(c.part)
		if err != nil || string(got) != c.want {
			t.Errorf("%T: got %s, %v, want %s", c.part, got, err, c.want)
		}
	}
}

func TestAnEventReadBackIsTheSame(t *testing.T) {
	for _, c := range bodyFields {
		full := reflect.New(reflect.TypeOf(c.body).Elem())
		fill(full.Elem())
		data, err := Event{Operation: Enroll, State: Started, ID: "a", Body: full.Interface().(Body)}.Encode()
		if err != nil {
			t.Fatalf("%T: %v", c.body, err)
		}
		back := reflect.New(full.Type().Elem())
		if err := DecodeEvent(data, back.Interface()); err != nil {
			t.Fatalf("%T: %v", c.body, err)
		}
		if diff := cmp.Diff(full.Interface(), back.Interface()); diff != "" {
			t.Errorf("%T (-want +got):\n%s", c.body, diff)
		}
	}
}

func keysOf(t *testing.T, b Body) []string {
	t.Helper()
	data, err := Event{Body: b}.Encode()
	if err != nil {
		t.Fatalf("%T: %v", b, err)
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil {
		t.Fatalf("%T: %v", b, err)
	}
	var keys []string
	for key := range members {
		keys = append(keys, key)
	}
	return sorted(keys)
}

func sorted(words []string) []string {
	words = slices.Clone(words)
	slices.Sort(words)
	return words
}

// fill gives every field of a body a value that is not zero.
func fill(v reflect.Value) {
	switch v.Interface().(type) {
	case Time:
		v.Set(reflect.ValueOf(Time{time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)}))
		return
	case json.RawMessage:
		v.Set(reflect.ValueOf(json.RawMessage(`{"a":1}`)))
		return
	case json.Number:
		v.SetString("9")
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for field, value := range v.Fields() {
			if field.Tag.Get("json") != "-" { // else it is not part of the body
				fill(value)
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string][]string{"amount": {"is required"}}))
	case reflect.String:
		v.SetString("x")
	case reflect.Int:
		v.SetInt(7)
	case reflect.Uint8, reflect.Uint64:
		v.SetUint(7)
	case reflect.Bool:
		v.SetBool(true)
	}
}
