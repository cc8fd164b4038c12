package act_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"errand/internal/oncall/act"
	"errand/internal/oncall/inspect"
	"errand/pkg/messages"
)

// Callbacks of a mandate come for as long as it lasts.
func TestWhatCameAfterTheEventsOfAnEnrollmentHaveGoneIsErasedToo(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"a text": `{"body":"` + payer + `"}`,
		"JSON":   `{"body":"{\"data\":[{\"order\":12,\"payer\":\"Ann <Payer\\u0040Example.com>\"}]}","body_encoding":"text"}`,
		"a form": `{"content_type":"application/x-www-form-urlencoded","body":"a=1&payer=payer%40example.com","body_encoding":"text"}`,
		"query":  `{"query":"a=1&payer=payer%40example.com"}`,
		"base64": `{"body":"eyJwYXllciI6InBheWVyQGV4YW1wbGUuY29tIn0=","body_encoding":"base64"}`,
	} {
		t.Run(name, func(t *testing.T) {
			p := ann(t)
			store(t, p, "mandate.callback.received.old", body)
			store(t, p, "mandate.callback.received.other", `{"body":"not-`+payer+`","query":"payer=another"}`)
			r := inspect.Reader{Conn: p.Conn, JS: p.JS}
			found, err := act.TracesOf(t.Context(), r, payer, nil, time.Now())
			if err != nil || len(found.Requests) != 1 || found.Requests[0].Refused != "" {
				t.Fatalf("found %+v, %v, want the callback of old", found.Requests, err)
			}
			if err := p.Erase(t.Context(), found.Requests[0], "x"); err != nil {
				t.Fatal(err)
			}
			if got := left(t, p, "mandate.callback"); !cmp.Equal(got, []string{"mandate.callback.received.other"}) {
				t.Errorf("left are %q", got)
			}
			if err := erase(t, p, messages.Enroll, "old"); err != nil {
				t.Errorf("again: %v, want that there is nothing more to do", err)
			}
		})
	}
}
