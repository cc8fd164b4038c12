package mail

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"errand/pkg/clients"
	"errand/pkg/messages"
)

func TestFailuresOfASubmissionHaveTheirFate(t *testing.T) {
	for _, c := range []struct {
		fixture string
		status  int // of HTTP
		fate    clients.Fate
		reason  messages.Reason
		decided int
		message string
	}{
		{"send.refused.quota.json", 400, clients.Refused, "refused", 400, "Quota exceeded, please top up your credit."},
		{"send.refused.quota.json", 200, clients.Refused, "refused", 400, "Quota exceeded, please top up your credit."},
		{"send.refused.quota.json", 402, clients.Held, "held", 402, "Quota exceeded, please top up your credit."},
		{"send.refused.422.json", 422, clients.Refused, "refused", 422, "The subject field is required."},
		{"send.refused.422.json", 200, clients.Refused, "refused", 422, "The subject field is required."},
		{"send.refused.422.json", 503, clients.Refused, "refused", 422, "The subject field is required."},
		{"send.refused.422.json", 500, clients.Unknown, "no_answer", 500, "The subject field is required."},
		{"send.refused.422.json", 404, clients.Held, "held", 404, "The subject field is required."},
		{"send.held.401.json", 401, clients.Held, "held", 401, "Missing API key."},
		{"send.held.401.json", 200, clients.Held, "held", 401, "Missing API key."},
		{"send.busy.429.json", 429, clients.Busy, "busy", 429, "Too many requests."},
		{"send.busy.429.json", 200, clients.Busy, "busy", 429, "Too many requests."},
		{"send.unknown.500.json", 500, clients.Unknown, "no_answer", 500, "Internal server error."},
		{"send.unknown.500.json", 200, clients.Unknown, "no_answer", 500, "Internal server error."},
		{"send.response.json", 422, clients.Refused, "refused", 422, "OK"},
		{"send.response.json", 302, clients.Unknown, "no_answer", 302, "OK"},
		{"send.response.nototal.json", 200, clients.Unknown, "bad_answer", 200, "OK"},
	} {
		f := newFake(t, c.status, golden(t, c.fixture))
		accepted, err := client(t, f, false).Send(t.Context(), encoded(t, notice), one)
		var e *clients.Error
		if !errors.As(err, &e) || accepted != 0 {
			t.Fatalf("%s under %d: got %d, %v, want an error", c.fixture, c.status, accepted, err)
		}
		if e.Fate != c.fate || e.Reason != c.reason || e.Status != c.decided || e.Message != c.message || e.Operation != "send" {
			t.Errorf("%s under %d: got %v %q, want %+v", c.fixture, c.status, e, e.Message, c)
		}
	}
}

func TestOddAnswersAreNoSuccess(t *testing.T) {
	for body, want := range map[string]clients.Fate{
		`{"error":false,"status_code":200,"data":{"total_recipient":1}}`:            clients.Success,
		`{"error":false,"status_code":"200","data":{"total_recipient":"1"}}`:        clients.Success,
		`{"error":false,"status_code":202,"data":{"total_recipient":1,"later":[]}}`: clients.Success,
		`{"error":false,"data":{"total_recipient":1}}`:                              clients.Success,
		`{"error":false,"status_code":422,"data":{"total_recipient":1}}`:            clients.Refused,
		`{"error":true,"status_code":422,"data":""}`:                                clients.Refused,
		`{"error":true,"status_code":"422","message":{"to":["no"]},"data":[]}`:      clients.Refused,
		`{"error":true,"data":{"total_recipient":1}}`:                               clients.Unknown,
		`{"error":true,"status_code":200,"data":{"total_recipient":1}}`:             clients.Unknown,
		`{"error":false,"status_code":0,"data":{"total_recipient":1}}`:              clients.Unknown,
		`{"error":"no","status_code":200,"data":{"total_recipient":1}}`:             clients.Unknown,
		`{"error":false,"status_code":"OK","data":{"total_recipient":1}}`:           clients.Unknown,
		`{"status_code":200,"data":{"total_recipient":1}}`:                          clients.Unknown,
		`{"error":false,"status_code":200,"data":{"total_recipient":-1}}`:           clients.Unknown,
		`{"error":false,"status_code":200,"data":{"total_recipient":1.5}}`:          clients.Unknown,
		`{"error":false,"status_code":200,"data":{"total_recipient":null}}`:         clients.Unknown,
		`{"error":false,"status_code":200,"data":null}`:                             clients.Unknown,
		`{"error":false,"status_code":200,"data":[]}`:                               clients.Unknown,
		`{"error":false,"status_code":200,"data":{"total_recipient":1}`:             clients.Unknown,
		`{}`: clients.Unknown, `[]`: clients.Unknown, `null`: clients.Unknown, ``: clients.Unknown, `OK`: clients.Unknown,
	} {
		f := newFake(t, 200, []byte(body))
		accepted, err := client(t, f, false).Send(t.Context(), encoded(t, notice), one)
		var e *clients.Error
		if got := clients.FateOf(err); got != want || want == clients.Success && accepted != 1 {
			t.Errorf("%s: got %d, %s (%v), want %s", body, accepted, got, err, want)
		}
		if want == clients.Unknown && errors.As(err, &e) && e.Reason != messages.ReasonBadAnswer {
			t.Errorf("%s: got reason %s, want bad_answer", body, e.Reason)
		}
	}
}

// Words decide nothing: two refused messages that quote them would hold everybody else's.
func TestARefusalIsOneWhateverItsWords(t *testing.T) {
	for _, body := range []string{`<html>`, ``, `{"message":"credit exhausted"}`, `{"error":"your quota is used up"}`,
		`{"errors":{"to":["your account is suspended"]}}`,
		`{"error":true,"status_code":422,"message":"Quota exceeded, your account is suspended"}`} {
		for _, status := range []int{400, 422} {
			f := newFake(t, status, []byte(body))
			if _, err := client(t, f, false).Send(t.Context(), encoded(t, notice), one); clients.FateOf(err) != clients.Refused {
				t.Errorf("%d %s: got %v, want refused", status, body, err)
			}
		}
	}
}

func TestFewerAcceptedThanSentIsToldAsItIs(t *testing.T) {
	f := newFake(t, 200, golden(t, "send.response.short.json"))
	if got, err := client(t, f, false).Send(t.Context(), encoded(t, notice), []string{"a@example.test", "b@example.test"}); got != 1 ||
		err != nil {
		t.Errorf("got %d, %v, want 1", got, err)
	}
}

func TestOnlyOneToAThousandRecipientsAreSent(t *testing.T) {
	f := newFake(t, 200, golden(t, "send.response.json"))
	c, m := client(t, f, false), encoded(t, notice)
	for _, n := range []int{0, 1001} {
		if _, err := c.Send(t.Context(), m, slices.Repeat(one, n)); clients.FateOf(err) != clients.Refused {
			t.Errorf("%d recipients: got %v, want refused", n, err)
		}
	}
	if _, err := c.Send(t.Context(), Encoded{}, one); clients.FateOf(err) != clients.Refused {
		t.Errorf("no message: got %v, want refused", err)
	}
	if len(f.arrived) != 0 {
		t.Errorf("%d calls were made", len(f.arrived))
	}
	for _, n := range []int{1, 1000} {
		if _, err := c.Send(t.Context(), m, slices.Repeat(one, n)); err != nil {
			t.Errorf("%d recipients: %v", n, err)
		}
	}
}

func TestHeadersThatWouldChangeTheMessageAreRefused(t *testing.T) {
	for _, name := range []string{
		"From", "TO", "cc", "Bcc", "Subject", "Reply-To", "Return-Path", "Content-Type", "Content-Transfer-Encoding", "MIME-Version",
		"Sender", "Message-ID", "Received", "DKIM-Signature", "Resent-From", "RESENT-DATE",
		"", "Two Words", "Colon:", "Line\r\nBcc", "Ünicode",
	} {
		_, err := Encode(Message{Headers: map[string]string{name: "payer@example.test"}})
		if clients.FateOf(err) != clients.Refused || strings.Contains(err.Error(), "payer@") {
			t.Errorf("header %q: got %v, want refused", name, err)
		}
	}
	for _, value := range []string{"a\r\nBcc: b", "a\n b", "a\rb"} {
		if _, err := Encode(Message{Headers: map[string]string{"X-Order": value}}); clients.FateOf(err) != clients.Refused {
			t.Errorf("value %q: got %v, want refused", value, err)
		}
	}
}

func TestAConfigurationIsCheckedAndNothingPrintsTheKey(t *testing.T) {
	for want, config := range map[string]Config{
		"Key is missing":             {URL: "https://mail.example.test"},
		"mail: URL is not":           {Key: clients.NewSecret(key)},
		"mail: URL is plain http://": {URL: "http://mail.example.test", Key: clients.NewSecret(key)},
	} {
		if _, err := New(config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	c, err := New(Config{URL: "https://mail.example.test", Key: clients.NewSecret(key)})
	if err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		for _, value := range []any{c, *c, struct{ c *Client }{c}, Config{Key: clients.NewSecret(key)}} {
			if text := fmt.Sprintf(verb, value); strings.Contains(text, key) || strings.Contains(text, fmt.Sprintf("%x", key)) {
				t.Errorf("%s of %T: %s", verb, value, text)
			}
		}
	}
}
