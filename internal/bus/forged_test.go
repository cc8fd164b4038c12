package bus_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/nats-io/nats.go"

	"errand/internal/bus"
	"errand/internal/sandbox/devkit/devtest"
)

// A publisher may give a request any headers, those too that the server adds to what
// it answers: they hide no other message, and add nothing.
func TestHeadersOfAMessageAreNotTakenForTheServers(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	js := opened(t, nc)
	forged := []nats.Header{{}, {"Status": {"404"}}, {"Status": {"204"}}, {"Status": {"503"}}, {"Status": {"500"}, "Description": {"x"}},
		{"Nats-Sequence": {"1"}}, {"Nats-Sequence": {"x"}}, {"Nats-Subject": {"mail.account.requested"}}, {"Nats-Time-Stamp": {"x"}},
		{"Nats-Num-Pending": {"x"}}, {"Nats-Last-Sequence": {"99"}}, {"Nats-Stream": {"OTHER"}}, {}}
	for _, body := range []string{"x", ""} {
		for n, h := range forged {
			m := &nats.Msg{Subject: "mail.send.requested", Header: h, Data: []byte(body)}
			if _, err := js.PublishMsg(t.Context(), m); err != nil {
				t.Fatalf("%d: %v", n, err)
			}
			end := bus.Scan{Stream: bus.MailRequests, Filter: ">"}
			if err := end.ToEnd(t.Context(), nc); err != nil || end.From < 2 {
				t.Errorf("%v, body %q: the end is %d, %v", h, body, end.From, err)
			}
			last, there, err := bus.Last(t.Context(), nc, bus.MailRequests, "mail.send.requested")
			if err != nil || !there || last.Subject != m.Subject || last.Sequence != end.From-1 {
				t.Errorf("%v, body %q: the last is %+v, %v, %v", h, body, last, there, err)
			}
		}
	}
	var got, want []string
	for _, page := range []int{1, 4, 100} {
		scan := bus.Scan{Stream: bus.MailRequests, Filter: "mail.send.requested", Page: page}
		got, want = nil, nil
		for n := range 2 * len(forged) {
			want = append(want, fmt.Sprint(n+1, " mail.send.requested"))
		}
		for len(got) <= len(want) {
			found, err := scan.Next(t.Context(), nc)
			if err != nil {
				t.Errorf("pages of %d: %v", page, err)
			}
			if len(found) == 0 {
				break
			}
			for _, m := range found {
				got = append(got, fmt.Sprint(m.Sequence, " ", m.Subject))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("pages of %d: %v", page, got)
		}
	}
}
