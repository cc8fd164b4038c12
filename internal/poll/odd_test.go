package poll

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"errand/pkg/clients"
	"errand/pkg/clients/mail"
	"errand/pkg/messages"
)

func TestAWrongTotalRecordHidesNoRow(t *testing.T) {
	for _, o := range []order{newestFirst, oldestFirst, unordered} {
		for _, wrong := range []int{-10_000, -60, -1, 1, 60, 1000} {
			t.Run(fmt.Sprint(o, wrong), func(t *testing.T) {
				inWorld(t, o, 330, func(w *world) {
					w.wrong = wrong
					w.sweeps(5 * time.Second)
					w.add(120)
					w.sweeps(15 * time.Second)
					w.add(7)
					w.sweeps(15 * time.Second)
					w.complete(w.T, w.store)
					if calls := w.sweeps(5 * time.Second); len(calls) > 14 {
						t.Errorf("a sweep of a log of 10 pages asked for %q", calls)
					}
				})
			})
		}
	}
}

// raw is an upstream with one body for every page.
type raw struct{ body string }

func (r raw) RoundTrip(request *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(r.body)), ContentLength: int64(len(r.body)), Request: request}, nil
}

func sweepOf(t *testing.T, body string, limit int) *store {
	t.Helper()
	s := &store{}
	synctest.Test(t, func(t *testing.T) {
		u := &upstream{}
		p := u.poller(t, &desk{store: s}, limit)
		var err error
		if p.Upstream, err = mail.New(mail.Config{URL: "http://127.0.0.1", Key: clients.NewSecret("key")}, clients.Transport(raw{body})); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithTimeout(t.Context(), 25*time.Second)
		defer stop()
		if err := p.Run(ctx); err != nil {
			t.Fatal(err)
		}
	})
	return s
}

func TestRowsThatCannotBeReadAreToldAsUnknown(t *testing.T) {
	s := sweepOf(t, `{"error":false,"status_code":200,"message":"OK","data":{"data":[7,null,"text",{},{"to":"a@b.test"},{"to":"a@b.test","delivered":1}],"total_record":6}}`, 100)
	var got []string
	for _, e := range s.events {
		if b, ok := e.Body.(*messages.DeliveryBody); ok {
			got = append(got, string(e.State)+" "+string(b.Entry))
		}
	}
	want := []string{"unknown 7", "unknown null", `unknown "text"`, "unknown {}", `unknown {"to":"a@b.test"}`, `delivered {"to":"a@b.test","delivered":1}`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}

func TestAnUpstreamThatIgnoresThePageIsNotReadForEver(t *testing.T) {
	for _, total := range []int{0, 2, 200} {
		s := sweepOf(t, fmt.Sprintf(`{"error":false,"status_code":200,"message":"OK","data":{"data":[{"envelope_id":"1","to":"a@b.test"},{"envelope_id":"2","to":"a@b.test"}],"total_record":%d}}`, total), 2)
		if n := len(s.told(t)); n != 2 {
			t.Errorf("total_record %d: %d events, want 2", total, n)
		}
		if n := len(s.marks); total == 200 && n != 0 {
			t.Errorf("%d watermarks for a log of which 198 rows were not seen", n)
		}
	}
}
