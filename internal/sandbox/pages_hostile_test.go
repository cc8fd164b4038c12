package sandbox

import (
	"net/http/httptest"
	"strings"
	"testing"
)

// dangers must not be on a page, whatever somebody enrolls or sends.
var dangers = []string{"<script", "<img", "javascript:", "vbscript:", "data:text", `" onmouseover=`, "' onmouseover=", "</title><"}

// hostile are values that try to break out of a text, an attribute or a link.
var hostile = []string{
	`<script>alert(1)</script>`,
	`"><img src=x onerror=alert(1)>`,
	`" onmouseover="alert(1)`,
	`' onmouseover='alert(1)`,
	`</title><script>alert(1)</script>`,
	`{{.Token}}`,
}

var hostileLinks = []string{
	"javascript:alert(1)", "JaVaScRiPt:alert(1)", "\tjavascript:alert(1)", "data:text/html,<script>alert(1)</script>", "vbscript:msgbox(1)",
	`https://shop.example.test/" onmouseover="alert(1)`, "https://shop.example.test/'><script>alert(1)</script>",
}

func TestNoValueGetsOutOfItsPlaceOnAPage(t *testing.T) {
	for _, value := range hostile {
		s := instant(t, newSandbox(t, strictOptions()))
		path := enrolled(t, s, enrollment1().with("order_number", value).with("payer_name", value).with("application_reason",
			value).with("frequency_mode", value))
		must(t, s, "POST", "/api/v0/messages", message1().with("subject", value).with("to",
			[]string{`"` + strings.ReplaceAll(value, `"`, `\"`) + `" <a@example.test>`}).String())
		for _, path := range []string{"/", path, "/mail"} {
			noDanger(t, value, page(t, s, path))
		}
	}
}

// A stranger chooses the link back to the merchant: whatever it is, it must run no
// script here. The page is rendered directly, because the service refuses such a URL.
func TestTheLinkToTheMerchantRunsNoScript(t *testing.T) {
	for _, link := range hostileLinks {
		w := httptest.NewRecorder()
		show(w, "enroll", enrollmentView{Return: link})
		if text := w.Body.String(); !strings.Contains(text, "Back to the merchant") {
			t.Errorf("the page has no link:\n%s", text)
		}
		noDanger(t, link, w.Body.String())
	}
}

func noDanger(t *testing.T, value, page string) {
	t.Helper()
	for _, danger := range dangers {
		if strings.Contains(strings.ToLower(page), danger) {
			t.Errorf("with %q the page holds %q:\n%s", value, danger, page)
		}
	}
}

// If a value breaks out nevertheless, the browser runs no script, and no other page can
// frame the buttons.
func TestPagesForbidScriptsAndFrames(t *testing.T) {
	s := newSandbox(t, strictOptions())
	for _, path := range []string{"/", "/mail", enrolled(t, s, enrollment1())} {
		policy := do(s, httptest.NewRequest("GET", path, nil)).Header().Get("Content-Security-Policy")
		if !strings.Contains(policy, "default-src 'none'") || !strings.Contains(policy, "frame-ancestors 'none'") ||
			strings.Contains(policy, "script") {
			t.Errorf("%s: policy %q", path, policy)
		}
	}
}
