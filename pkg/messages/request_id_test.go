package messages

import (
	"cmp"
	"testing"
)

// A request has one id wherever it is read, by the program that runs it and by the commands that look for it in its queue.
func TestTheIDOfARequestIsItsBodysOrElseItsHeaders(t *testing.T) {
	for body, want := range map[string]string{
		`{"request_id": "a"}`:                    "a",
		`{"request_id": "a", "request_id": "b"}`: "", // nobody knows which
		`{"request_id": "a b"}`:                  "",
		`{"request_id": 1}`:                      "",
		`{"Request_ID": "a"}`:                    "header", // another field
		`{"request_id": null}`:                   "header",
		`{"request_id": ""}`:                     "header",
		`{"to": []}`:                             "header",
		`[]`:                                     "",
		`{`:                                      "",
	} {
		meta, err := Check(Send, []byte(body))
		if got := meta.ID("header", err); got != want {
			t.Errorf("%s: %q, not %q", body, got, cmp.Or(want, "none"))
		}
		if got := meta.ID("he ader", err); got != "" && got != want {
			t.Errorf("%s under a header that does not fit: %q", body, got)
		}
	}
}
