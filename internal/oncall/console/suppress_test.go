package console

import (
	"net/url"
	"regexp"
	"strings"
	"testing"

	"errand/internal/bus"
)

// Who may act suppresses an address that was found, and has it written to again; the page never shows it.
func TestAnAddressIsSuppressedWhereItIsFound(t *testing.T) {
	in := installed(t)
	in.secrets = &bus.Secrets{Conn: in.reader.Conn}
	_, page := in.post("/find", url.Values{"word": {"ann@example.com"}})
	wants := func(want string) {
		t.Helper()
		if !strings.Contains(page, want) || strings.Contains(page, "ann@example.com</") {
			t.Fatalf("it shows\n%s\nwant %q", page, want)
		}
	}
	wants("Not suppressed")
	wants("Whether messages leave out suppressed addresses is not known")
	form := regexp.MustCompile(`action="(/find/[^"]+/suppress)"`).FindStringSubmatch(page)
	if form == nil {
		t.Fatal("there is no form")
	}
	_, page = in.post(form[1], url.Values{"why": {" "}})
	wants("a reason is required")
	_, page = in.post(form[1], url.Values{"why": {"asked by telephone"}})
	wants("added by ann: asked by telephone")
	_, page = in.post(form[1], url.Values{"why": {"it is there again"}, "do": {"remove"}})
	wants("removed by ann: it is there again")
	if _, page = in.get("/audit"); !strings.Contains(page, "unsuppress") {
		t.Errorf("the audit shows\n%s", page)
	}
	reads := installed(t, "read")
	reads.secrets = &bus.Secrets{Conn: reads.reader.Conn}
	if _, page = reads.post("/find", url.Values{"word": {"ann@example.com"}}); strings.Contains(page, "uppress") {
		t.Error("one who may only read can suppress")
	}
}
