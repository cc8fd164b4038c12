package e2e

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"errand/internal/callback"
	"errand/internal/sandbox"
	"errand/pkg/clients"
	"errand/pkg/clients/mandate"
	"errand/pkg/messages"
)

// Each call of a request has the same return_url, whatever is configured when it is made
// again; what the sender named stays.
func TestARequestHasOneReturnURL(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.fault(often(1, sandbox.Fault{Operation: "enroll", Kind: sandbox.Status, Status: 503, Headers: map[string]string{"Retry-After": "60"}}))
		b.publish("mandate.enroll.requested", enrollment("r1"))
		configured := b.mandates()
		configured.CallbackURL, configured.CallbackSecret = "https://callbacks.example.com/a/", strings.Repeat("secret-a", 4)
		b.run(configured, time.Minute, func() bool { return b.count("mandate.enroll.deferred.r1") > 0 })
		b.publish("mandate.enroll.requested", enrollment("r2", "return_url", "https://shop.example.com/back"))
		moved := b.mandates()
		moved.CallbackURL, moved.CallbackSecret = "https://callbacks.example.com/b", strings.Repeat("secret-b", 4)
		b.run(moved, time.Hour, func() bool { return b.ended("mandate.enroll", "r1")() && b.ended("mandate.enroll", "r2")() })
		b.wantEnd("mandate.enroll", "succeeded", "r1")
		b.wantEnd("mandate.enroll", "succeeded", "r2")
		var got []string
		for _, call := range b.of("enroll") {
			got = append(got, call.body["return_url"].(string))
		}
		for _, e := range b.events("mandate.enroll.started.r1") {
			got = append(got, e.Body["return_url"].(string))
		}
		of := 0
		for _, url := range got {
			switch {
			case strings.HasPrefix(url, "https://callbacks.example.com/a/r1/") && url == got[0]:
				of++
			case url != "https://shop.example.com/back":
				t.Errorf("return_url is %s", url)
			}
		}
		errorIf(t, of != 4 || len(got) != 5, "got %q, want two calls and two started of r1 with one URL", got)
		for _, e := range b.events("mandate.enroll.started.r2") {
			errorIf(t, e.Body["return_url"] != nil, "started names what the sender gave: %s", e.Raw)
		}
	})
}

// toHandler sends the sandbox's callbacks to a handler, after change.
type toHandler struct {
	handler http.Handler
	change  func(body string) string
}

func (h toHandler) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	sent := httptest.NewRequest(r.Method, r.URL.String(), strings.NewReader(h.change(string(body))))
	sent.Header = r.Header
	w := httptest.NewRecorder()
	h.handler.ServeHTTP(w, sent)
	return w.Result(), nil
}

// The sandbox signs with code of its own what the receiver checks.
func TestTheReceiverChecksWhatTheSandboxSigns(t *testing.T) {
	secret := clients.NewSecret(strings.Repeat(secretMark, 4))
	addresses, err := callback.NewAddresses("http://127.0.0.1/mandates", false, secret)
	must(t, err)
	for name, c := range map[string]struct {
		signs  string
		change func(body string) string
		want   messages.CallbackChecksum
	}{
		"as signed": {checksumSecret, func(body string) string { return body }, messages.ChecksumValid},
		"changed": {checksumSecret, func(body string) string { return strings.Replace(body, `"currency":"MYR"`, `"currency":"USD"`, 1) },
			messages.ChecksumInvalid},
		"another secret": {"another", func(body string) string { return body }, messages.ChecksumInvalid},
		"not signed":     {"", func(body string) string { return body }, messages.ChecksumAbsent},
	} {
		var mu sync.Mutex
		got := map[string]messages.CallbackChecksum{}
		h := &callback.Handler{Secrets: []clients.Secret{secret}, Checksum: clients.NewSecret(checksumSecret),
			Store: func(_ context.Context, request string, b *messages.CallbackBody) error {
				mu.Lock()
				defer mu.Unlock()
				kind := "authorization"
				if strings.Contains(b.Body, "bank_approval") {
					kind = "bank_approval"
				}
				got[request+" "+kind] = b.Checksum
				return nil
			}}
		box := sandbox.New(sandbox.Options{MandateToken: mandateToken, PortalKey: portalKey, ChecksumSecret: c.signs,
			Callbacks: toHandler{h, c.change}})
		web := httptest.NewServer(box)
		api, err := mandate.New(mandate.Config{URL: web.URL, Token: clients.NewSecret(mandateToken), PortalKey: clients.NewSecret(portalKey),
			ChecksumSecret: clients.NewSecret(c.signs)})
		must(t, err)
		for id, payer := range map[string]string{"r1": "Test Payer", "r2": `  Zoë <O'Neill> "&" |  `} {
			e := mandate.Enrollment{OrderNumber: "order-" + id, Amount: "100.50", PayerIDType: "1", PayerID: []byte(`"900101011234"`),
				PayerName: payer, PayerEmail: "payer@example.test",
				PayerTelephoneNumber: []byte(`"0123456789"`), FrequencyMode: "MT", MaxFrequency: "9", ApplicationReason: "checksum",
				PayerBankCode: "TEST01", ReturnURL: addresses.URL(id),
				EffectiveDate: time.Now().Add(48 * time.Hour).Format(time.DateOnly)}
			if _, err = api.Enroll(t.Context(), e); err == nil {
				err = box.Decide(e.OrderNumber, sandbox.Approve)
			}
			must(t, err)
		}
		web.Close()
		box.Close() // what it began to send is sent
		errorIf(t, len(got) != 4, "%s: callbacks %v, want two of each", name, got)
		for of, checksum := range got {
			if want := c.want; checksum != want && !(name == "changed" && strings.HasSuffix(of, "bank_approval")) {
				t.Errorf("%s: %s is %s, want %s", name, of, checksum, want)
			}
		}
	}
}
