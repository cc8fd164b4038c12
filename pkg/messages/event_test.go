package messages

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"errand/internal/wire"
)

func TestTimesAreWrittenInUTCWithMilliseconds(t *testing.T) {
	zone := time.FixedZone("", 8*60*60)
	for _, c := range []struct {
		at   time.Time
		want string
	}{
		{time.Date(2026, 1, 2, 3, 4, 5, 678_900_000, time.UTC), `"2026-01-02T03:04:05.678Z"`},
		{time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), `"2026-01-02T03:04:05.000Z"`},
		{time.Date(2026, 1, 2, 3, 4, 5, 999_999_999, zone), `"2026-01-01T19:04:05.999Z"`},
	} {
		got, err := json.Marshal(Time{c.at})
		if err != nil || string(got) != c.want {
			t.Errorf("%v: got %s, %v, want %s", c.at, got, err, c.want)
		}
		var back Time
		if err := json.Unmarshal(got, &back); err != nil || !back.Equal(c.at.Truncate(time.Millisecond)) || back.Location() != time.UTC {
			t.Errorf("%s: read back as %v, %v", got, back, err)
		}
	}
}

func TestATimeOfAnotherZoneIsReadAsUTC(t *testing.T) {
	var got Time
	err := json.Unmarshal([]byte(`"2026-01-02T11:04:05+08:00"`), &got)
	if want := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC); err != nil || got.Time != want {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}

func TestTextsAreCutTo500Characters(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"short", "declined", "declined"},
		{"empty", "", ""},
		{"exact", strings.Repeat("a", 500), strings.Repeat("a", 500)},
		{"long", strings.Repeat("a", 501), strings.Repeat("a", 500)},
		{"characters, not octets", strings.Repeat("é", 600), strings.Repeat("é", 500)},
		{"control characters", "a\r\nb\tc\x7fd\u0085e\u2028f\x00", "a  b c d e f "},
		{"broken octets", "a\xffb", "a\ufffdb"},
	} {
		got := wire.Cut(c.text)
		if got != c.want || !utf8.ValidString(got) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestEveryTextOfABodyIsCut(t *testing.T) {
	long := strings.Repeat("é\n", 400)
	fields := map[string][]string{long: {long, long}}
	list := make([]InvalidAddress, 150)
	for i := range list {
		list[i] = InvalidAddress{Address: long, Reason: long, Why: long}
	}
	for _, b := range []Body{
		&FailedBody{Message: long, Fields: fields, OrderNumber: long, ConflictsWith: long},
		&DeferredBody{Message: long},
		&EnrollUncertain{Message: long, OrderNumber: long},
		&SendOutcome{Message: long, Fields: fields, ConflictsWith: long, Invalid: list, Unsettled: []Unsettled{{Message: long}}},
		&BatchBody{Message: long},
		&ReopenedBody{By: long, Why: long},
		&DeliveryBody{SMTP: SMTP{Enhanced: long}, Entry: json.RawMessage(`{}`)},
	} {
		data, err := Event{Body: b}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range textsOf(t, data) {
			if n := utf8.RuneCountInString(text); n > 500 || strings.Contains(text, "\n") {
				t.Errorf("%T: a text of %d characters is in %.200s", b, n, data)
			}
		}
	}
	if fields[long][0] != long || list[0].Address != long {
		t.Error("encoding an event changed the body")
	}
}

func TestAnOutcomeListsAHundredInvalidAddresses(t *testing.T) {
	b := &SendOutcome{InvalidCount: 150, Invalid: make([]InvalidAddress, 150)}
	data, err := Event{Body: b}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	var back SendOutcome
	if err := DecodeEvent(data, &back); err != nil || len(back.Invalid) != 100 || back.InvalidCount != 150 {
		t.Errorf("got %d of %d, %v, want 100 of 150", len(back.Invalid), back.InvalidCount, err)
	}
}

func TestAFailureOfManyFieldsStaysSmall(t *testing.T) {
	fields := map[string][]string{}
	for i := range 10_000 {
		fields[fmt.Sprint("field_", i)] = []string{"is wrong", strings.Repeat("é", i%700)}
	}
	data, err := Event{Body: &FailedBody{Fields: fields}}.Encode()
	if err != nil || len(data) > 100<<10 || len(data) < 50<<10 {
		t.Errorf("got %d octets, %v", len(data), err)
	}
}

func TestABatchAcceptedForNobodySaysSo(t *testing.T) {
	for _, c := range []struct {
		body BatchBody
		want bool
	}{{BatchBody{Accepted: new(int)}, true}, {BatchBody{}, false}} {
		data, err := Event{Body: &c.body}.Encode()
		if got := strings.Contains(string(data), `"accepted":0`); err != nil || got != c.want {
			t.Errorf("got %s, %v", data, err)
		}
	}
}

func TestAnEventKeepsTheUpstreamsLettersAsTheyAre(t *testing.T) {
	b := &EnrollSucceeded{Enrollment: json.RawMessage(`{"url":"https://pay.example/?a=1&b=<2>"}`)}
	data, err := Event{Operation: Enroll, State: Succeeded, ID: "a", Body: b}.Encode()
	if want := `"enrollment":{"url":"https://pay.example/?a=1&b=<2>"}`; err != nil || !strings.Contains(string(data), want) {
		t.Errorf("got %s, %v, want it to hold %s", data, err, want)
	}
}

func TestHeadersAreCloudEventsInBinaryMode(t *testing.T) {
	at := Time{time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)}
	got := map[string][]string{"traceparent": {"00-1-2-01"}}
	Event{Batch, Accepted, BatchID("m-1", 3), &BatchBody{Common: Common{At: at}}}.Headers(got, "/mail-consumer", "m-1.3.accepted")
	want := map[string][]string{
		"ce-specversion": {"1.0"}, "ce-id": {"m-1.3.accepted"}, "ce-source": {"/mail-consumer"}, "ce-type": {"mail.batch.accepted"},
		"ce-subject": {"m-1"}, "ce-time": {"2026-01-02T03:04:05.006Z"}, "content-type": {"application/json"},
		"traceparent": {"00-1-2-01"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDeliveriesHaveFewHeaders(t *testing.T) {
	got := map[string][]string{}
	Event{Delivery, Bounced, "m-1", &DeliveryBody{Common: Common{At: Time{time.Now()}}}}.Headers(got, "/log-poller", "e-1")
	want := map[string][]string{"ce-id": {"e-1"}, "ce-type": {"mail.delivery.bounced"}, "content-type": {"application/json"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestHeadersHoldNoLineBreaks(t *testing.T) {
	got := map[string][]string{}
	Event{Operation: "a\nb", State: "c\rd", ID: "e\r\nf"}.Headers(got, "g\r\nh", "i\nj")
	for name, values := range got {
		if strings.ContainsAny(strings.Join(values, ""), "\r\n") {
			t.Errorf("%s: %q", name, values)
		}
	}
	// Values share one array: one more of a name must not become another's.
	got["ce-id"] = append(got["ce-id"], "second")
	if got["ce-source"][0] == "second" {
		t.Error("adding a ce-id overwrote ce-source")
	}
}

func TestABodyThatCannotBeReadBackIsAPlainError(t *testing.T) {
	var b SendStarted
	for _, data := range []string{"", "{", `{"recipients":"many"}`, `{"at":"yesterday"}`} {
		if err := DecodeEvent([]byte(data), &b); err == nil {
			t.Errorf("%q: no error", data)
		}
	}
	if err := DecodeEvent([]byte(`{"recipients":1,"of_a_newer_program":true}`), &b); err != nil {
		t.Errorf("an unknown field: %v", err)
	}
}

// textsOf are all strings and names in a JSON text.
func textsOf(t *testing.T, data []byte) (texts []string) {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(string(data)))
	for {
		token, err := dec.Token()
		if err != nil {
			return texts
		}
		if s, ok := token.(string); ok {
			texts = append(texts, s)
		}
	}
}
