package mandate

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"errand/pkg/clients"
	"errand/pkg/messages"

	"github.com/google/go-cmp/cmp"
)

func TestChecksumsAreThePublishedOnes(t *testing.T) {
	const short, long = "c6d9620028e44322586d1ae3a37dc4f802f9b04738a94bcc467e1ae9cae0de9c",
		"06b9efde39a3b779851205201e48e3b30a61ece547cded99f8240558fe0067af"
	for name, c := range map[string]struct {
		change func(*Enrollment)
		want   string
	}{
		"as published":     {func(*Enrollment) {}, short},
		"two decimals":     {func(e *Enrollment) { e.Amount = "100.50" }, long},
		"numbers":          {func(e *Enrollment) { e.PayerID, e.PayerTelephoneNumber = []byte("900101011234"), []byte("60190000000") }, short},
		"spaces":           {func(e *Enrollment) { e.PayerName, e.PayerID = "  Test Payer\t", []byte(`" 900101011234 "`) }, short},
		"unsigned fields":  {func(e *Enrollment) { e.PortalKey, e.Metadata, e.Checksum = "x", "y", "z" }, short},
		"missing is empty": {func(e *Enrollment) { *e = Enrollment{} }, "86362f4bbe33386bc0fcc162020139d71450edd89f417b95d05ef9f2ff83ae58"},
	} {
		e := enrollment(t, "enroll.request.json")
		c.change(&e)
		if got := Checksum(clients.NewSecret(signing), e); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

func TestAnAmountKeepsItsValueInEveryForm(t *testing.T) {
	for _, c := range []struct{ text, shortest, fixed string }{
		{"100", "100", "100.00"},
		{"100.5", "100.5", "100.50"},
		{"100.50", "100.5", "100.50"},
		{"100.00", "100", "100.00"},
		{"100.120", "100.12", "100.12"},
		{"0.05", "0.05", "0.05"},
		{"30000", "30000", "30000.00"},
		{"100.123", "", ""}, {"1e2", "", ""}, {"-1", "", ""}, {"", "", ""}, {"abc", "", ""}, {"01", "", ""}, {".5", "", ""}, {"1.x", "", ""},
	} {
		shortest, ok := amountText(c.text, "")
		fixed, okFixed := amountText(c.text, "fixed2")
		if shortest != c.shortest || fixed != c.fixed || ok != (c.shortest != "") || okFixed != ok {
			t.Errorf("%q: got %q, %q, want %q, %q", c.text, shortest, fixed, c.shortest, c.fixed)
		}
	}
}

func TestWhatCannotBeSentIsRefusedWithoutACall(t *testing.T) {
	f := newFake(t, 200, golden(t, "enroll.response.json"))
	for name, change := range map[string]func(*Enrollment){
		"amount":  func(e *Enrollment) { e.Amount = "1e2" },
		"payer":   func(e *Enrollment) { e.PayerID = json.RawMessage(`"900101`) },
		"id type": func(e *Enrollment) { e.PayerIDType = "one" },
	} {
		e := enrollment(t, "enroll.request.json")
		change(&e)
		if _, err := client(t, Config{URL: f.URL}).Enroll(t.Context(), e); clients.FateOf(err) != clients.Refused ||
			strings.Contains(err.Error(), "900101") {
			t.Errorf("%s: got %v, want refused", name, err)
		}
	}
	if len(f.arrived) != 0 {
		t.Errorf("%d calls were made", len(f.arrived))
	}
}

func TestFailuresOfAnEnrollmentAreReadFromEveryKnownShape(t *testing.T) {
	amount := []string{"The amount must be at least 5."}
	email := []string{"The payer email must be a valid email address.", "The payer email is too long."}
	for _, c := range []struct {
		fixture string
		status  int
		want    clients.Error
	}{
		{"enroll.refused.422.json", 422, clients.Error{
			Fate: clients.Refused,
			Message: "amount: The amount must be at least 5.; payer_email: The payer email must be a valid email address.; payer_email: The " +
				"payer email is too long.", Fields: map[string][]string{"amount": amount, "payer_email": email},
		}},
		{"enroll.refused.422.errors.json", 422, clients.Error{
			Fate: clients.Refused, Message: "The given data was invalid.", Fields: map[string][]string{"amount": amount},
		}},
		{"enroll.refused.400.error.json", 400, clients.Error{Fate: clients.Refused, Message: "Portal is not found."}},
		{"enroll.refused.400.message.json", 400, clients.Error{Fate: clients.Refused, Message: "Direct debit is not enabled for this account."}},
		{"enroll.held.403.json", 403, clients.Error{Fate: clients.Held, Message: "This action is unauthorized.", RetryAfter: 7 * time.Second}},
		{"enroll.busy.429.json", 429, clients.Error{Fate: clients.Busy, Message: "Too many requests.", RetryAfter: 7 * time.Second}},
		{"enroll.response.json", 500, clients.Error{Fate: clients.Unknown, Reason: "no_answer", Message: "status 500 Internal Server Error"}},
	} {
		f := newFake(t, c.status, golden(t, c.fixture))
		f.header = http.Header{"Retry-After": {"7"}}
		got, err := client(t, Config{URL: f.URL}).Enroll(t.Context(), enrollment(t, "enroll.request.json"))
		c.want.Operation, c.want.Status = "enroll", c.status
		if c.want.Reason == "" {
			c.want.Reason = messages.Reason(c.want.Fate)
		}
		var e *clients.Error
		if !errors.As(err, &e) || got.Body != nil {
			t.Fatalf("%s: got %v, %v, want an error only", c.fixture, got, err)
		}
		if diff := cmp.Diff(fields(c.want), fields(*e)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.fixture, diff)
		}
	}
}

// The payer needs the link as it came. Elsewhere in the answer, and in a link that holds another secret, nothing is kept.
func TestALinkThatHoldsThePortalKeyIsKept(t *testing.T) {
	const own = "own-portal"
	for _, c := range []struct {
		what, own, link, want string
		fate                  clients.Fate
	}{
		{"no key", "", "https://pay.test/1", "https://pay.test/1", clients.Success},
		{"the configured key", "", "https://pay.test/sandbox-portal/7", "https://pay.test/sandbox-portal/7", clients.Success},
		{"escaped for JSON", "", `https:\/\/pay.test\/sandbox\u002dportal`, "https://pay.test/sandbox-portal", clients.Success},
		{"the request's own key", own, "https://pay.test/own-portal", "https://pay.test/own-portal", clients.Success},
		{"both", own, "https://pay.test/sandbox-portal/own-portal", "https://pay.test/sandbox-portal/own-portal", clients.Success},
		{"the token", "", "https://pay.test/sandbox-portal?t=token-of-the-test", "", clients.Unknown},
	} {
		f := newFake(t, 200, []byte(`{"portal":"sandbox-portal `+c.own+`","url":"`+c.link+`","x":"own sandbox-portal"}`))
		e := enrollment(t, "enroll.request.json")
		e.PortalKey = c.own
		got, err := client(t, Config{URL: f.URL}).Enroll(t.Context(), e)
		if want := strings.Count(c.want, portalKey); got.URL != c.want || clients.FateOf(err) != c.fate ||
			strings.Count(strings.ReplaceAll(string(got.Body), `\u002d`, "-"), portalKey) != want {
			t.Errorf("%s: got %q, %v, want %q: %s", c.what, got.URL, err, c.want, got.Body)
		}
	}
}

// fields is an Error without its Err and without its ways of printing.
func fields(e clients.Error) map[string]any {
	return map[string]any{
		"operation": e.Operation, "fate": e.Fate, "reason": e.Reason, "status": e.Status, "message": e.Message, "fields": e.Fields,
		"wait": e.RetryAfter,
	}
}

func TestASuccessWithoutAURLIsABadAnswer(t *testing.T) {
	for _, body := range []string{
		string(golden(t, "enroll.response.nourl.json")), `{"url":""}`, `{"url":" "}`, `{"url":null}`, `{"url":7}`, `{"data":{"url":"x"}}`, `[]`,
		``, `{"url":"x"`,
		`{"url":"x"} trailing`,
	} {
		f := newFake(t, 200, []byte(body))
		_, err := client(t, Config{URL: f.URL}).Enroll(t.Context(), enrollment(t, "enroll.request.json"))
		var e *clients.Error
		if !errors.As(err, &e) || e.Fate != clients.Unknown || e.Reason != messages.ReasonBadAnswer {
			t.Errorf("%s: got %v, want unknown, bad_answer", body, err)
		}
	}
}

// The answer to another enrollment, that a confused upstream or proxy gives, says nothing about this one.
func TestAnAnswerAboutAnotherOrderNumberIsABadAnswer(t *testing.T) {
	e := enrollment(t, "enroll.request.json")
	for order, want := range map[string]clients.Fate{
		`"another"`: clients.Unknown, `"` + e.OrderNumber + `"`: clients.Success, `" ` + e.OrderNumber + ` "`: clients.Success,
		`""`: clients.Success, `null`: clients.Success, `7`: clients.Success,
		`"` + strings.ToLower(e.OrderNumber) + `"`: clients.Success, `"` + strings.ReplaceAll(e.OrderNumber, " ", "") + `"`: clients.Success,
		`"` + e.OrderNumber + `1"`: clients.Unknown,
	} {
		f := newFake(t, 200, []byte(`{"url":"https://mandate.example.test/1","order_number":`+order+`}`))
		if _, err := client(t, Config{URL: f.URL}).Enroll(t.Context(), e); clients.FateOf(err) != want {
			t.Errorf("order_number %s: got %v, want %s", order, err, want)
		}
	}
}

// One that fits into no event could not be published.
func TestALinkOfUnheardLengthIsABadAnswer(t *testing.T) {
	for length, want := range map[int]clients.Fate{8 << 10: clients.Success, 8<<10 + 1: clients.Unknown} {
		link := "https://mandate.example.test/"
		link += strings.Repeat("x", length-len(link))
		f := newFake(t, 200, []byte(`{"url":"`+link+`"}`))
		if _, err := client(t, Config{URL: f.URL}).Enroll(t.Context(), enrollment(t, "enroll.request.json")); clients.FateOf(err) != want {
			t.Errorf("a link of %d: got %v, want %s", length, err, want)
		}
	}
}

func TestUnknownFieldsOfAnAnswerAreKept(t *testing.T) {
	const body = `{"url":"https://mandate.example.test/1","later":{"a":[1.10]}}`
	f := newFake(t, 200, []byte(body))
	got, err := client(t, Config{URL: f.URL}).Enroll(t.Context(), enrollment(t, "enroll.request.json"))
	if err != nil || string(got.Body) != body {
		t.Errorf("got %s, %v", got.Body, err)
	}
}

func TestSecretsThatComeBackAreRemoved(t *testing.T) {
	body := fmt.Sprintf(`{"message":"%s %s %s another-portal","url":"https://mandate.example.test/1"}`, token, portalKey, signing)
	const clean = `{"message":"[redacted] [redacted] [redacted] [redacted]","url":"https://mandate.example.test/1"}`
	e := enrollment(t, "enroll.request.json")
	e.PortalKey = "another-portal"
	config := Config{ChecksumSecret: clients.NewSecret(signing)}

	f := newFake(t, 200, []byte(body))
	config.URL = f.URL
	if got, err := client(t, config).Enroll(t.Context(), e); err != nil || string(got.Body) != clean {
		t.Errorf("got %s, %v, want %s", got.Body, err, clean)
	}
	f.status = 400
	_, err := client(t, config).Enroll(t.Context(), e)
	var failed *clients.Error
	if want := "[redacted] [redacted] [redacted] [redacted]"; !errors.As(err, &failed) || failed.Message != want {
		t.Errorf("got %q, want %q", failed.Message, want)
	}
}

func TestAConfigurationIsCheckedAndNamedInTheError(t *testing.T) {
	good := Config{URL: "https://mandate.example.test", Token: clients.NewSecret(token)}
	for want, change := range map[string]func(*Config){
		"Token is missing":                     func(c *Config) { c.Token = clients.Secret{} },
		`Version is "v4"`:                      func(c *Config) { c.Version = "v4" },
		"V2URL is not an absolute":             func(c *Config) { c.Version = "v2" },
		"mandate: URL is not an absolute":      func(c *Config) { c.URL = "" },
		"mandate: URL is plain http:// to hos": func(c *Config) { c.URL = "http://mandate.example.test" },
		`AmountFormat is "long"`:               func(c *Config) { c.AmountFormat = "long" },
		"Authorization":                        func(c *Config) { c.Token = clients.NewSecret("two words") },
	} {
		config := good
		change(&config)
		if _, err := New(config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestNothingPrintsAClientsSecrets(t *testing.T) {
	c := client(t, Config{URL: "https://mandate.example.test", ChecksumSecret: clients.NewSecret(signing)})
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		for _, value := range []any{c, *c, *c.config.Load(), struct{ c *Client }{c}} {
			text := fmt.Sprintf(verb, value)
			for _, secret := range []string{token, portalKey, signing, fmt.Sprintf("%x", token)} {
				if strings.Contains(text, secret) {
					t.Errorf("%s of %T shows %s: %s", verb, value, secret, text)
				}
			}
		}
	}
}
