package sandbox

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// The clients are tested with the same files, which were written by hand from the two
// documents.
const (
	mandateFixtures = "../../pkg/clients/mandate/testdata/"
	mailFixtures    = "../../pkg/clients/mail/testdata/"
)

func fixture(t *testing.T, path string) map[string]any {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var value map[string]any
	if err := json.Unmarshal(data, &value); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return value
}

// shape lists a value's fields and their JSON types, one line each. An array has the
// shape of its first element.
func shape(at string, value any) []string {
	switch value := value.(type) {
	case map[string]any:
		lines := []string{at + " object"}
		for _, name := range slices.Sorted(maps.Keys(value)) {
			lines = append(lines, shape(at+"."+name, value[name])...)
		}
		return lines
	case []any:
		lines := []string{at + " array"}
		if len(value) > 0 {
			lines = append(lines, shape(at+"[]", value[0])...)
		}
		return lines
	case nil:
		return []string{at + " null"}
	case float64:
		return []string{at + " number"}
	case bool:
		return []string{at + " boolean"}
	default:
		return []string{fmt.Sprintf("%s %T", at, value)}
	}
}

func sameShape(t *testing.T, path string, got map[string]any) {
	t.Helper()
	want := strings.Join(shape("", fixture(t, path)), "\n")
	if is := strings.Join(shape("", got), "\n"); is != want {
		t.Errorf("the sandbox's answer has a different shape than %s: got\n%s\nwant\n%s", path, is, want)
	}
}

// golden is a sandbox with the credentials of the fixtures.
func golden(t *testing.T) *Sandbox {
	o := strictOptions()
	o.PortalKey = "sandbox-portal"
	return instant(t, newSandbox(t, o))
}

func TestRequestFixturesAreAccepted(t *testing.T) {
	for pattern, path := range map[string]string{mandateFixtures + "enroll.request*.json": "/v3/mandates", mailFixtures +
		"send.request*.json": "/api/v0/messages"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("no fixture matches %s: %v", pattern, err)
		}
		for _, file := range files {
			body, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if status, got := ask(t, golden(t), "POST", path, string(body)); status != http.StatusOK {
				t.Errorf("%s: got %d %v", file, status, got)
			}
		}
	}
}

func TestMandateAnswersHaveTheShapeOfTheFixtures(t *testing.T) {
	s := golden(t)
	body, err := os.ReadFile(mandateFixtures + "enroll.request.json")
	if err != nil {
		t.Fatal(err)
	}
	got := must(t, s, "POST", "/v3/mandates", string(body))
	sameShape(t, mandateFixtures+"enroll.response.json", got)
	want := fixture(t, mandateFixtures+"enroll.response.json")
	delete(want, "url")
	delete(got, "url")
	equal(t, "values of the answer", got, want)

	one := enrollment1().with("portal_key", "sandbox-portal").with("return_url", "http://127.0.0.1:1/cb").with("order_number", "DD2")
	must(t, s, "POST", "/v3/mandates", one.String())
	sameShape(t, mandateFixtures+"transactions.response.json", list(t, s, "?order_number=DD2"))
	sameShape(t, mandateFixtures+"transactions.response.empty.json", list(t, s, "?order_number=DD3"))
	for range 26 {
		must(t, s, "POST", "/v3/mandates", one.with("order_number", "DD4").String())
	}
	sameShape(t, mandateFixtures+"transactions.response.first.json", list(t, s, "?order_number=DD4"))
	sameShape(t, mandateFixtures+"transactions.response.last.json", list(t, s, "?order_number=DD4&page=2"))

	status, refused := ask(t, s, "POST", "/v3/mandates", one.with("amount", 1).without("payer_email").String())
	equal(t, "status", status, 422)
	sameShape(t, mandateFixtures+"enroll.refused.422.json", refused)
	_, refused = ask(t, s, "POST", "/v3/mandates", one.with("portal_key", "other").String())
	sameShape(t, mandateFixtures+"enroll.held.403.json", refused)
	_, refused = ask(t, s, "POST", "/v3/mandates", "[]")
	sameShape(t, mandateFixtures+"enroll.refused.400.message.json", refused)
}

func TestMailAnswersHaveTheShapeOfTheFixtures(t *testing.T) {
	s := golden(t)
	sameShape(t, mailFixtures+"logs.response.empty.json", must(t, s, "GET", "/api/v0/logs", ""))
	sameShape(t, mailFixtures+"send.response.json", must(t, s, "POST", "/api/v0/messages", message1().String()))
	page := must(t, s, "GET", "/api/v0/logs", "")
	sameShape(t, mailFixtures+"logs.response.json", page)
	if _, err := time.Parse(time.RFC3339, dig(t, page, "data", "data", 0, "created_at").(string)); err != nil {
		t.Error(err)
	}
	send(t, s, "Notice", "bounce@example.test")
	sameShape(t, mailFixtures+"logs.response.failed.json", must(t, s, "GET", "/api/v0/logs?limit=1", ""))
	sameShape(t, mailFixtures+"user.response.json", must(t, s, "GET", "/api/v0/user", ""))

	_, refused := ask(t, s, "POST", "/api/v0/messages", message1().without("subject").String())
	sameShape(t, mailFixtures+"send.refused.422.json", refused)
	equal(t, "message", refused["message"], fixture(t, mailFixtures+"send.refused.422.json")["message"])
	set(t, s, func(v *Settings) { v.Quota = 0 })
	_, refused = ask(t, s, "POST", "/api/v0/messages", message1().String())
	sameShape(t, mailFixtures+"send.refused.quota.json", refused)
}
