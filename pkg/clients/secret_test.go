package clients

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"errand/pkg/messages"
)

const hidden = "s3cret/word&more"

// printed is every form in which programs print a value by accident.
func printed(t *testing.T, value any) map[string]string {
	t.Helper()
	forms := map[string]string{"Sprint": fmt.Sprint(value), "Errorf": fmt.Errorf("x: %v", value).Error()}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "% x", "%d", "%t", "%10.3s", "%T%v"} {
		forms[verb] = fmt.Sprintf(verb, value)
		forms["nested "+verb] = fmt.Sprintf(verb, struct{ Nested any }{value})
	}
	if text, err := json.Marshal(map[string]any{"value": value}); err == nil {
		forms["json"] = string(text)
	}
	if text, err := xml.Marshal(value); err == nil {
		forms["xml"] = string(text)
	}
	var b bytes.Buffer
	options := &slog.HandlerOptions{Level: slog.LevelDebug}
	slog.New(slog.NewTextHandler(&b, options)).Info("m", "value", value, slog.Group("g", "value", value))
	slog.New(slog.NewJSONHandler(&b, options)).Info("m", "value", value, "list", []any{value})
	forms["slog"] = b.String()
	return forms
}

func TestNothingPrintsASecret(t *testing.T) {
	s := NewSecret(hidden)
	type config struct{ key Secret }
	hex := fmt.Sprintf("%x", hidden)
	for name, value := range map[string]any{
		"secret": s, "pointer": &s, "exported field": struct{ Key Secret }{s}, "unexported field": config{s},
		"pointer to struct": &config{s}, "slice": []Secret{s}, "map": map[string]Secret{"key": s},
	} {
		for form, text := range printed(t, value) {
			if strings.Contains(text, hidden) || strings.Contains(strings.ToLower(strings.ReplaceAll(text, " ", "")), hex) {
				t.Errorf("%s by %s: %s", name, form, text)
			}
		}
	}
	if s.Reveal() != hidden {
		t.Errorf("Reveal() = %q, want %q", s.Reveal(), hidden)
	}
}

func TestSecretsLoseTheWhiteSpaceOfAFile(t *testing.T) {
	if got := NewSecret(" word\r\n").Reveal(); got != "word" {
		t.Errorf("got %q, want word", got)
	}
	var zero Secret
	if !zero.Empty() || zero.Reveal() != "" || !NewSecret("\n").Empty() || fmt.Sprint(zero) != "" {
		t.Error("the zero secret is not empty")
	}
}

func TestSecretsAreRemovedFromTheUpstreamsWords(t *testing.T) {
	s := newSecrets([]Secret{NewSecret("abcdef"), NewSecret("abcdefghi"), NewSecret(hidden), {}}).with("of-this-call")
	for text, want := range map[string]string{
		"token abcdefghi and abcdef":        "token [redacted] and [redacted]",
		"raw " + hidden:                     "raw [redacted]",
		`php s3cret\/word&more`:             "php [redacted]",
		`json s3cret/word\u0026more`:        "json [redacted]",
		"query s3cret%2Fword%26more":        "query [redacted]",
		"path s3cret%2Fword&more":           "path [redacted]",
		"lower s3cret%2fword%26more":        "lower [redacted]",
		"html s3cret/word&amp;more":         "html [redacted]",
		"own of-this-call, nothing else":    "own [redacted], nothing else",
		"nothing to hide":                   "nothing to hide",
		strings.Repeat("x", 495) + "abcdef": strings.Repeat("x", 495) + "[redacted]",
	} {
		if got := s.cleanText(text); got != want {
			t.Errorf("cleanText(%q) = %q, want %q", text, got, want)
		}
	}
	if got := newSecrets(nil).with("e").cleanText("the payer's key e: off"); got != "the payer's key [redacted]: off" {
		t.Errorf("a secret of one letter: got %q", got)
	}
	short := newSecrets([]Secret{NewSecret("abc"), NewSecret("tok")}).with("p-1")
	if got, want := string(short.clean([]byte(`{"message":"tok, tokens, \"abc\" and p-1","url":"https://x.test/?k=tok"}`))),
		`{"message":"[redacted], tokens, \"[redacted]\" and [redacted]","url":"https://x.test/?k=[redacted]"}`; got != want {
		t.Errorf("short ones: got %s, want %s", got, want)
	}
	if got := string(s.clean([]byte(`{"abc":"s3cret\/word&more"}`))); got != `{"abc":"[redacted]"}` {
		t.Errorf("clean: got %s", got)
	}
}

// However JSON escapes it, a secret is found in the texts of a body, names included; the rest stays as it was.
func TestSecretsAreRemovedFromTheTextsOfABody(t *testing.T) {
	known := newSecrets([]Secret{NewSecret(hidden)}, "portal_key")
	for _, c := range []struct{ what, own, body, want string }{
		{"escaped letters", "", `{"a" : "x \u00733cret\/word\u0026more", "n":1.50}`, `{"a" : "x [redacted]", "n":1.50}`},
		{"a name", "", `{"\u00733cret/word&more":[true]}`, `{"[redacted]":[true]}`},
		{"other escapes", "", `{"a":"\u00e9\n","b":"\/"}`, `{"a":"\u00e9\n","b":"\/"}`},
		{"a member of that name", "", `{"portal_key":"whose?","mandate":{"portal_key" : 17, "portal_key":null},"l":["portal_key","x"]}`,
			`{"portal_key":"[redacted]","mandate":{"portal_key" : "[redacted]", "portal_key":null},"l":["portal_key","x"]}`},
		{"a list of that name", "", `{"a":[1],"portal_key" : ["whose",["]"],{"k":7}], "b":{"portal_key":[]}}`,
			`{"a":[1],"portal_key" : "[redacted]", "b":{"portal_key":"[redacted]"}}`},
		{"an object of that name", "", `{"errors":{"portal_key":{"whose":["\"}",1]}},"n":{"x":2}}`,
			`{"errors":{"portal_key":"[redacted]"},"n":{"x":2}}`},
		{"an object of that name that does not end", "", `{"portal_key":{"whose":["x"`, `{"portal_key":"[redacted]"`},
		{"a request's own", "my-own-portal", `{"message":"my-own-portal is off","x":"my\u002down-portal"}`,
			`{"message":"[redacted] is off","x":"[redacted]"}`},
		{"a short one alone", "pk1", `{"message":"key pk1: off","order_number":"pk10","u":"?k=pk1&x"}`,
			`{"message":"key [redacted]: off","order_number":"pk10","u":"?k=[redacted]\u0026x"}`},
		{"no JSON", "", `portal_key "x": \ "`, `portal_key "x": \ "`},
		{"nothing", "", `{"url":"https://x.test/1"}`, `{"url":"https://x.test/1"}`},
	} {
		if got := string(known.with(c.own).clean([]byte(c.body))); got != c.want {
			t.Errorf("%s: got %s, want %s", c.what, got, c.want)
		}
	}
}

func TestNothingPrintsTheUpstreamsWords(t *testing.T) {
	e := &Error{
		Operation: "enroll", Fate: Refused, Reason: messages.ReasonRefused, Status: 422, Message: "words of payer@example.test",
		Fields: map[string][]string{"words": {"words"}},
	}
	for form, text := range printed(t, e) {
		if strings.Contains(text, "words") || strings.Contains(text, "payer@") || strings.Contains(text, fmt.Sprintf("%x", "words")) {
			t.Errorf("by %s: %s", form, text)
		}
	}
	for form, text := range printed(t, *e) {
		if strings.Contains(text, "words") {
			t.Errorf("value by %s: %s", form, text)
		}
	}
	if got, want := e.Error(), "enroll: refused: status 422"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	bad := Error{Operation: "send", Fate: Unknown, Reason: messages.ReasonBadAnswer, Status: 200, Err: errBadAnswer}
	if got, want := bad.Error(), "send: unknown (bad_answer): status 200: answer unreadable or incomplete"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if !errors.Is(bad, errBadAnswer) {
		t.Error("the cause is lost")
	}
}
