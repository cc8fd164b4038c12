package deliveries

import (
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"errand/internal/history"
	"errand/internal/lists/sweep"
	"errand/pkg/clients/mail"
	"errand/pkg/messages"
)

func TestStatusFollowsTheFlagAndTheReply(t *testing.T) {
	for _, c := range []struct {
		delivered bool
		response  string
		want      messages.State
	}{
		{true, "250 2.0.0 OK", messages.Delivered},
		{true, "", messages.Delivered},
		{true, "queued as 1234", messages.Delivered},
		{true, "550 5.1.1 no", messages.Unknown},
		{false, "451 4.7.1 later", messages.Deferred},
		{false, "550 5.1.1 no", messages.Bounced},
		{false, "5.1.1 no such user", messages.Bounced},
		{false, "4.4.1 no answer", messages.Deferred},
		{false, "250 OK", messages.Unknown},
		{false, "", messages.Unknown},
		{false, "connection refused", messages.Unknown},
	} {
		if got := statusOf(mail.Entry{Delivered: c.delivered}, mail.Entry{Response: c.response}.Reply()); got != c.want {
			t.Errorf("delivered %t, %q: %s, want %s", c.delivered, c.response, got, c.want)
		}
	}
}

func text(id sweep.ID) string { return hex.EncodeToString(id[:]) }

func TestAnIDNamesAStateOfARow(t *testing.T) {
	base := mail.Entry{EnvelopeID: "19b77cfb4c0abcdef0", To: "Payer@Example.test", Raw: json.RawMessage(`{"a":1}`)}
	// echo -ne '19b77cfb4c0abcdef0\0Payer@example.test' | sha256sum | head -c 32, and the last byte XOR 1
	if got, want := text(idOf(base, delivered)), vector; got != want {
		t.Errorf("id = %s, want %s", got, want)
	}
	for name, c := range map[string]struct {
		change func(*mail.Entry)
		same   bool
	}{
		"domain without case": {func(e *mail.Entry) { e.To = "Payer@eXAMPLE.TEST" }, true},
		"other fields":        {func(e *mail.Entry) { e.Raw, e.CreatedAt, e.Response = json.RawMessage(`{}`), time.Now(), "250" }, true},
		"local part":          {func(e *mail.Entry) { e.To = "payer@example.test" }, false},
		"envelope":            {func(e *mail.Entry) { e.EnvelopeID += "1" }, false},
		"border of fields":    {func(e *mail.Entry) { e.EnvelopeID, e.To = e.EnvelopeID+"P", "ayer@example.test" }, false},
	} {
		e := base
		c.change(&e)
		if got := idOf(e, delivered) == idOf(base, delivered); got != c.same {
			t.Errorf("%s: same id %t, want %t", name, got, c.same)
		}
	}
	if idOf(base, delivered) == idOf(base, deferred) {
		t.Error("two states have one id")
	}
	a, b := mail.Entry{Raw: json.RawMessage(`7`)}, mail.Entry{Raw: json.RawMessage(`8`)}
	if idOf(a, unknown) == idOf(b, unknown) {
		t.Error("two rows that cannot be read have one id")
	}
	id := idOf(base, delivered)
	if got, ok := sweep.ParseID(text(id)); !ok || got != id {
		t.Errorf("ParseID(%x) = %x, %t", id, got, ok)
	}
	for _, wrong := range []string{"", "watermark", strings.Repeat("x", 32), text(id) + "00"} {
		if _, ok := sweep.ParseID(wrong); ok {
			t.Errorf("%q is taken for an id", wrong)
		}
	}
}

const vector = "c64342c933e7fcadbb6cb7693ff9476f"

// A row that no message has room for is cut, whatever is large in it: it must not stop the others.
func TestARowThatFitsIntoNoEventIsCut(t *testing.T) {
	large := strings.Repeat("x", 128<<10)
	for _, raw := range []string{`{"to":"` + large + `"}`, `{"to":"a","from":"` + large + `"}`, `["` + large + `"]`} {
		e := mail.Entry{Raw: json.RawMessage(raw), To: "a@example.test", EnvelopeID: "1"}
		event := eventOf(New(Config{}), e)
		for len(event.Body.(*messages.DeliveryBody).Entry) > 4096 && history.Abridge(event.Body) { // as the sink does
		}
		if data, err := event.Encode(); err != nil || len(data) > 4096+1024 || !json.Valid(data) {
			t.Errorf("%.20s: event of %d bytes, %v", raw, len(data), err)
		}
	}
}

// A row without a time has a neighbour's; a time in the future does not count.
func TestARowOfAPageHasATime(t *testing.T) {
	now := time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)
	at := func(h int) time.Time { return now.Add(time.Duration(h) * time.Hour) }
	for name, c := range map[string]struct{ times, want []time.Time }{
		"all":           {[]time.Time{at(-1), at(-2)}, []time.Time{at(-1), at(-2)}},
		"none":          {[]time.Time{{}, at(25)}, []time.Time{{}, {}}},
		"the first not": {[]time.Time{{}, {}, at(-2)}, []time.Time{at(-2), at(-2), at(-2)}},
		"the last not":  {[]time.Time{at(23), at(25), {}}, []time.Time{at(23), at(23), at(23)}},
	} {
		var entries []mail.Entry
		for _, at := range c.times {
			entries = append(entries, mail.Entry{EnvelopeID: "1", To: "a@example.test", CreatedAt: at})
		}
		var got []time.Time
		for _, r := range rowsOf(entries, now) {
			got = append(got, r.At)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestARowOfAPageIsKnownInEachOfItsStates(t *testing.T) {
	e := mail.Entry{EnvelopeID: "1", To: "a@Example.test", Response: "451 later"}
	rows := func(e mail.Entry) sweep.Row[mail.Entry] { return rowsOf([]mail.Entry{e}, time.Now())[0] }
	waits := rows(e)
	e.Delivered, e.Response, e.To = true, "250 OK", "a@example.test"
	done := rows(e)
	if waits.ID == done.ID || waits.ID.Key() != done.ID.Key() || waits.Final || !done.Final {
		t.Errorf("%+v, then %+v", waits, done)
	}
	e.To = "b@example.test"
	if rows(e).ID.Key() == done.ID.Key() {
		t.Error("two rows have one key")
	}
	if e.Delivered, e.Response = false, "550 no"; !rows(e).Final {
		t.Error("a row that bounced may change")
	}
}
