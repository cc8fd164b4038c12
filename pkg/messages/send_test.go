package messages

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const (
	sendRequired = `{"subject":"Hello","content":"Hello there","to":["a@b.example"]}`
	sendObject   = `{"subject":"Hello","content":"Hello there","to_object":{"bucket":"lists","name":"a/b c","digest":"` + someDigest + `"}}`
	someDigest   = "SHA-256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU="
)

func TestAMessageIsReadFieldForField(t *testing.T) {
	got, meta, err := Decode[SendRequest]([]byte(`{"request_id":"m-1","on_unknown":"resend","give_up_at":"2026-01-02T03:04:05Z","from":"Shop \u003ca@b.example>",
		"to" : [ "c@d.example", "E <e@f.example>" ] ,"reply_to":"r@b.example","unsubscribe_link":"https://b.example/u","subject":"S é",
		"as_html":1,"content":"line\r\n\tline","headers":{"X-A":"1","List-Id":"<l.b.example>","X-Empty":"","X-Null":null}}`))
	want := SendRequest{
		RequestID: "m-1", OnUnknown: "resend", GiveUpAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), From: "Shop <a@b.example>",
		ReplyTo:         "r@b.example",
		UnsubscribeLink: "https://b.example/u", Subject: "S é", Content: "line\r\n\tline", AsHTML: 1,
		Headers: map[string]string{"X-A": "1", "List-Id": "<l.b.example>"}, To: json.RawMessage(`[ "c@d.example", "E <e@f.example>" ]`),
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil || meta.RequestID != "m-1" {
		t.Errorf("%v, %+v (-want +got):\n%s", err, meta, diff)
	}
}

func TestAListMayBeAnObjectInstead(t *testing.T) {
	got, _, err := Decode[SendRequest]([]byte(sendObject))
	want := &ObjectRef{Bucket: "lists", Name: "a/b c", Digest: someDigest}
	if diff := cmp.Diff(want, got.ToObject); diff != "" || err != nil || got.To != nil || got.OnUnknown != OnUnknownReport || got.AsHTML != 0 {
		t.Errorf("%+v, %v (-want +got):\n%s", got, err, diff)
	}
	unpadded := strings.Replace(sendObject, "=\"}}", "\"}}", 1)
	if got, _, err := Decode[SendRequest]([]byte(unpadded)); err != nil || got.ToObject.Digest != someDigest {
		t.Errorf("without padding: got %+v, %v", got.ToObject, err)
	}
}

func TestThereIsExactlyOneList(t *testing.T) {
	const need, both = "is required, or to_object instead", "must not be given beside to"
	for _, c := range []struct {
		object, name, raw string
		want              map[string][]string
	}{
		{sendRequired, "to", `null`, map[string][]string{"to": {need}}},
		{sendRequired, "to", `""`, map[string][]string{"to": {need}}},
		{sendRequired, "to", `[]`, map[string][]string{"to": {need}}},
		{sendRequired, "to_object", `null`, nil},
		{sendRequired, "to_object", `{}`, nil},
		{sendObject, "to", `[]`, nil},
		{sendObject, "to", `"a@b.example"`, map[string][]string{"to_object": {both}}},
	} {
		_, _, err := Decode[SendRequest](with(t, c.object, c.name, c.raw))
		if diff := cmp.Diff(c.want, faultsOf(t, err)); diff != "" {
			t.Errorf("%s %s in %s (-want +got):\n%s", c.name, c.raw, c.object, diff)
		}
	}
}

func TestAReferenceNeedsBucketNameAndDigest(t *testing.T) {
	const digest = "must be SHA-256= and the base64url of 32 octets, not their hexadecimal form"
	for raw, want := range map[string]map[string][]string{
		`{"bucket":"b"}`: {"to_object": {"digest is required", "name is required"}},
		`{"bucket":null,"name":"","digest":"` + someDigest + `"}`: {"to_object": {"bucket is required",
			"name is required"}},
		`{"bucket":1,"name":"a\nb","digest":true}`: {"to_object": {"bucket must be a string",
			"digest must be a string", "name must not hold control characters or line breaks"}},
		`{"bucket":"b.c","name":"n","digest":"` + someDigest +
			`"}`: {"to_object": {"bucket must be letters, digits, _ or -"}},
		`{"bucket":"b","name":"n","digest":"` + someDigest + `","size":1}`:                          {"to_object": {"size is not a known field"}},
		`{"bucket":"b","name":"n","digest":"SHA-256=abc"}`:                                          {"to_object": {"digest " + digest}},
		`{"bucket":"b","name":"n","digest":"` + someDigest[8:] + `"}`:                               {"to_object": {"digest " + digest}},
		`{"bucket":"b","name":"n","digest":"SHA-1` + someDigest[7:] + `"}`:                          {"to_object": {"digest " + digest}},
		`{"bucket":"b","name":"n","digest":"SHA-256=47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="}`: {"to_object": {"digest " + digest}},
		`"object"`: {"to_object": {"must be an object of bucket, name and digest"}},
		`[1]`:      {"to_object": {"must be an object of bucket, name and digest"}},
	} {
		_, _, err := Decode[SendRequest](with(t, sendObject, "to_object", raw))
		if diff := cmp.Diff(want, faultsOf(t, err)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", raw, diff)
		}
	}
}

func TestHeadersThatWouldContradictTheMessageAreRefused(t *testing.T) {
	for _, name := range []string{
		"From", "To", "Cc", "Bcc", "Subject", "Reply-To", "Return-Path", "Content-Type", "Content-Transfer-Encoding", "MIME-Version",
		"Sender", "Message-ID", "Received", "DKIM-Signature", "Resent-From", "Resent-To", "Resent-Anything",
		"FROM", "bcc", "rEPLY-tO", "mime-version", "message-id", "RESENT-DATE",
	} {
		_, _, err := Decode[SendRequest](with(t, sendRequired, "headers", `{"`+name+`":"x"}`))
		if diff := cmp.Diff(map[string][]string{"headers": {name + " is reserved and must not be set here"}}, faultsOf(t, err)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestAHeaderCannotBeginAnother(t *testing.T) {
	const name, value = "is not a header name", "must not hold control characters or line breaks"
	for raw, want := range map[string]map[string][]string{
		`{"X-A":"1\r\nBcc: x@y.example"}`: {"headers": {"X-A " + value}},
		`{"X-A":"1\nBcc: x@y.example"}`:   {"headers": {"X-A " + value}},
		`{"X-A":"1\u0000"}`:               {"headers": {"X-A " + value}},
		`{"X-A\r\nBcc":"x"}`:              {"headers": {"X-A  Bcc " + name}},
		`{"X A":"x"}`:                     {"headers": {"X A " + name}},
		`{"X-A:":"x"}`:                    {"headers": {"X-A: " + name}},
		`{"Bcc ":"x"}`:                    {"headers": {"Bcc  " + name}},
		`{"X-é":"x"}`:                     {"headers": {"X-é " + name}},
		`{"":"x"}`:                        {"headers": {`"" ` + name}},
		`{"X-A":"1","x-a":"2"}`:           {"headers": {"x-a is given twice"}},
		`{"X-A":1}`:                       {"headers": {"X-A must be a string"}},
		`{"X-A":["1"]}`:                   {"headers": {"X-A must be a string"}},
		`["X-A: 1"]`:                      {"headers": {"must be an object of strings"}},
		`"X-A: 1"`:                        {"headers": {"must be an object of strings"}},
		`{"X-A":"é ü","x.b_c!":"` + strings.Repeat("a", 8000) + `"}`: nil,
		`{"X-A":"` + strings.Repeat("a", 8001) + `"}`:                {"headers": {"X-A must have at most 8000 characters"}},
	} {
		_, _, err := Decode[SendRequest](with(t, sendRequired, "headers", raw))
		if diff := cmp.Diff(want, faultsOf(t, err)); diff != "" {
			t.Errorf("%.100s (-want +got):\n%s", raw, diff)
		}
	}
	many := map[string]string{}
	for i := range 100 {
		many[fmt.Sprint("X-", i)] = "x"
	}
	raw, _ := json.Marshal(many)
	if got, _, err := Decode[SendRequest](with(t, sendRequired, "headers", string(raw))); err != nil || len(got.Headers) != 100 {
		t.Errorf("a hundred: got %d, %v", len(got.Headers), err)
	}
	many["X-Last"] = "x"
	raw, _ = json.Marshal(many)
	if _, _, err := Decode[SendRequest](with(t, sendRequired, "headers", string(raw))); !slices.Equal(faultsOf(t, err)["headers"],
		[]string{"must have at most 100 members"}) {
		t.Errorf("one more: got %v", err)
	}
}

func TestRulesOfTheFieldsOfAMessage(t *testing.T) {
	for _, c := range []struct {
		fields    string
		good, bad []string
	}{
		{"subject", []string{`"S"`, `"é 😀"`}, []string{`null`, `""`, `" "`, `"a\nb"`, `"a\tb"`, `1`, `"` + strings.Repeat("a", 1001) + `"`}},
		{"content", []string{`"a\n\tb\r\n"`, `" "`, `"` + strings.Repeat("a", 1<<20) + `"`}, []string{`null`, `""`, `"a\u0000"`, `1`, `["a"]`}},
		{"suppress", []string{`0`, `true`, `false`, `null`}, []string{`2`, `"no"`}},
		{"as_html", []string{`0`, `1`, `true`, `false`, `null`, `""`}, []string{`2`, `-1`, `1.0`, `"1"`, `"true"`, `[1]`, `{"a":1}`}},
		{"from reply_to", []string{`"a@b.example"`, `"\"Shop, Ltd.\" <a@b.example>"`, `"Café <a@b.example>"`},
			[]string{`"Shop"`, `"a@b.example, c@d.example"`, `"a@b.example\r\nBcc: x@y.example"`, `1`, `["a@b.example"]`, `"<>"`}},
		{"unsubscribe_link", []string{`"https://b.example/u?id=1"`, `"mailto:u@b.example?subject=stop"`},
			[]string{`"b.example/u"`, `"mailto:"`, `"ftp://b.example/u"`, `"https://b.example/u\n"`, `1`}},
		{"on_unknown", []string{`"report"`, `"resend"`, `""`}, []string{`"retry"`, `"conclude"`, `"x"`, `1`}},
		{"give_up_at", []string{`"2026-01-02T03:04:05Z"`, `null`}, []string{`"2026-01-02"`, `1`}},
		{"to", []string{`"a@b.example"`, `"a@b.example, c@d.example"`, `["a@b.example"]`, `["not valid at all"]`, `["", "a"]`, `"x"`},
			[]string{`1`, `true`, `{"a":"b"}`, `[1]`, `["a@b.example",null]`, `["a@b.example",["c@d.example"]]`, `[""]`, `[" ","\n"]`, `" , ,"`,
				`","`, `[","]`}},
	} {
		for name := range strings.FieldsSeq(c.fields) {
			for _, raw := range c.good {
				if _, _, err := Decode[SendRequest](with(t, sendRequired, name, raw)); err != nil {
					t.Errorf("%s %.80s: got %v, want none", name, raw, err)
				}
			}
			for _, raw := range c.bad {
				_, _, err := Decode[SendRequest](with(t, sendRequired, name, raw))
				if faults := faultsOf(t, err); len(faults) != 1 || len(faults[name]) == 0 {
					t.Errorf("%s %.80s: got %q, want one fault under %s", name, raw, faults, name)
				}
			}
		}
	}
}

// What the outcome counts without duplicates and invalid addresses is found in the caller's list again.
func TestUnsentNamesThePlacesOfTheCallersOwnList(t *testing.T) {
	list := []string{"nobody", "ann@example.com", "Ann <ann@EXAMPLE.com>", "bob@example.com", "Gone <gone@example.com>", "cem@example.com",
		"dan@example.com", "cem@example.com", "gone@EXAMPLE.com"}
	request := SendRequest{To: Recipients(list...)}
	o := SendOutcome{Recipients: 4, InvalidCount: 2, UnsettledCount: 2,
		Invalid: []InvalidAddress{{Address: "nobody", Reason: "is not an email address"},
			{Address: "gone@example.com", Reason: ReasonOfSuppressed, Why: "bounced: 550"}},
		Unsettled: []Unsettled{{Batch: 2, First: 1, Count: 1, State: Refused, Reason: ReasonRefused, Message: "no"},
			{Batch: 3, First: 2, Count: 1, State: Uncertain, Reason: ReasonNoAnswer}}}
	got, err := o.Unsent(request.Addresses())
	want := []Unsent{{0, "nobody", Failed, ReasonInvalidRequest, "is not an email address"},
		{3, "bob@example.com", Refused, ReasonRefused, "no"},
		{4, "Gone <gone@example.com>", Failed, ReasonInvalidRequest, "suppressed: bounced: 550"},
		{5, "cem@example.com", Uncertain, ReasonNoAnswer, ""}, {7, "cem@example.com", Uncertain, ReasonNoAnswer, ""},
		{8, "gone@EXAMPLE.com", Failed, ReasonInvalidRequest, "suppressed: bounced: 550"}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	for name, change := range map[string]func(*SendOutcome){
		"another list":         func(o *SendOutcome) { o.Recipients++ },
		"invalid, not listed":  func(o *SendOutcome) { o.InvalidCount++ },
		"batches, not listed":  func(o *SendOutcome) { o.UnsettledCount++ },
		"left out, not listed": func(o *SendOutcome) { o.Invalid = nil },
	} {
		other := o
		change(&other)
		if got, err := other.Unsent(request.Addresses()); err == nil || strings.Contains(err.Error(), "@") {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
