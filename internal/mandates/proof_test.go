package mandates

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"errand/internal/history"
	"errand/pkg/clients"
	"errand/pkg/clients/mandate"
	"errand/pkg/messages"
)

// service is a transaction list whose records have times in its own zone.
type service struct {
	mu      sync.Mutex
	zone    *time.Location
	ahead   time.Duration // of its clock
	records []record
	reads   []string // the order numbers that were asked for
}

type record struct {
	order, kind string
	made        time.Time
}

func (s *service) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	order := r.URL.Query().Get("order_number")
	s.reads = append(s.reads, order)
	var shown []string
	for _, r := range s.records {
		if order == "" || order == r.order {
			shown = append(shown, fmt.Sprintf(`{"order_number":%q,"transaction_type":%q,"created_at":%q}`, r.order, r.kind,
				r.made.Add(s.ahead).In(s.zone).Format(time.DateTime)))
		}
	}
	body := `{"data":[` + strings.Join(shown, ",") + `]}`
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, ContentLength: int64(len(body)),
		Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

func (s *service) made(order string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records = append(s.records, record{order, "Enrollment", time.Now()})
}

// enrolled are the events of an enrollment that succeeded.
type enrolled struct {
	order              string
	started, succeeded time.Time
}

func (e *enrolled) last(_ context.Context, _ messages.Operation, filter string) (history.Entry, error) {
	switch {
	case e.order == "":
		return history.Entry{}, nil
	case filter == "mandate.enroll.succeeded.*":
		return history.Entry{Subject: "mandate.enroll.succeeded.r0", Sequence: 2, At: e.succeeded,
			Body: []byte(`{"order_number":"` + e.order + `"}`)}, nil
	}
	return history.Entry{Subject: filter, Sequence: 1, At: e.started}, nil
}

var kualaLumpur = time.FixedZone("Asia/Kuala_Lumpur", 8*60*60)

// list is the list of a service, with Asia/Kuala_Lumpur configured.
func list(t *testing.T, s *service, e *enrolled) *List {
	t.Helper()
	if s.zone == nil {
		s.zone = kualaLumpur
	}
	api, err := mandate.New(mandate.Config{URL: "http://127.0.0.1:1", Token: clients.NewSecret("token")}, clients.Transport(s))
	if err != nil {
		t.Fatal(err)
	}
	return &List{Client: api, Settle: time.Minute, Times: &Times{Zone: kualaLumpur, Client: api, Last: e.last, Logger: zerolog.Nop()}}
}

// succeed makes an enrollment that succeeds, from which the offset is learned.
func (e *enrolled) succeed(s *service) {
	e.order, e.started = "DD 0", time.Now()
	s.made(e.order)
	time.Sleep(2 * time.Second)
	e.succeeded = time.Now()
}

func TestACallWasNotTakenOnProofAlone(t *testing.T) {
	const us, other = "DD 1", "DD 2"
	for _, c := range []struct {
		what     string
		before   string // the order number of a record from before the call; "" means no such record
		learned  bool
		answered bool
		wait     time.Duration // from the call's end to the look
		made     time.Duration // from the call's end to the record of another one; 0 means no such record
		late     time.Duration // from the call's end until it is listed itself; 0 for never
		ahead    time.Duration // by how much the time of a record from before the call is to come; 0 means no such record
		want     Proof
		flaw     string
	}{
		{what: "the list is empty", wait: time.Hour, flaw: "nothing at all"},
		{what: "it shows others, and has settled", before: other, wait: time.Minute, want: NotListed},
		{what: "it shows others, and has not settled", before: other, wait: time.Minute - 1, flaw: "not show it yet"},
		{what: "it shows a younger record", before: other, learned: true, answered: true, wait: 20 * time.Second, made: 10 * time.Second,
			want: NotListed},
		{what: "the record may be as old", before: other, learned: true, answered: true, wait: 20 * time.Second, made: 4 * time.Second,
			flaw: "not show it yet"},
		{what: "the offset is not known", before: other, answered: true, wait: 20 * time.Second, made: 10 * time.Second,
			flaw: "not show it yet"},
		{what: "a record has a time to come", before: other, learned: true, answered: true, wait: 20 * time.Second, ahead: time.Hour,
			flaw: "not show it yet"},
		{what: "the service may still be at work", before: other, learned: true, wait: 20 * time.Second, made: 10 * time.Second,
			flaw: "not show it yet"},
		{what: "it was listed late", before: other, learned: true, wait: 70 * time.Second, late: 59 * time.Second, want: Listed},
		{what: "it is of an earlier enrollment", before: us, learned: true, wait: time.Hour, want: Listed},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, e := &service{}, &enrolled{}
			l := list(t, s, e)
			if c.before != "" {
				s.made(c.before)
			}
			if c.learned {
				e.succeed(s)
			}
			time.Sleep(time.Hour)
			ended := time.Now()
			if c.ahead > 0 {
				s.records = append(s.records, record{other, "Enrollment", ended.Add(c.ahead)})
			}
			for after, order := range map[time.Duration]string{c.made: other, c.late: us} {
				if after > 0 {
					time.AfterFunc(after, func() { s.made(order) })
				}
			}
			time.Sleep(c.wait)
			found, err := l.Prove(t.Context(), Call{Order: us, Ended: ended, Answered: c.answered})
			if err != nil || found.Proof() != c.want || !strings.Contains(found.Flaw, c.flaw) || (c.flaw == "") != (found.Flaw == "") {
				t.Errorf("%s: got proof %d, %q, %v; want %d, %q", c.what, found.Proof(), found.Flaw, err, c.want, c.flaw)
			}
			if found.Early != (c.flaw == "not show it yet") {
				t.Errorf("%s: it is too early %t", c.what, found.Early)
			}
		})
	}
}

// A wrong clock of the service does not make a record proof that is older than the call.
func TestAServiceWhoseClockIsWrongProvesNoMore(t *testing.T) {
	for _, ahead := range []time.Duration{2 * time.Minute, -2 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			s, e := &service{ahead: ahead}, &enrolled{}
			l := list(t, s, e)
			e.succeed(s)
			time.Sleep(time.Hour)
			s.made("DD 2")
			time.Sleep(time.Minute)
			ended := time.Now()
			time.Sleep(20 * time.Second)
			found, err := l.Prove(t.Context(), Call{Order: "DD 1", Ended: ended, Answered: true})
			if err != nil || found.Proof() != Nothing || !found.Early {
				t.Errorf("ahead by %v: got proof %d, %q, %v", ahead, found.Proof(), found.Flaw, err)
			}
			began := time.Now()
			time.Sleep(time.Second)
			s.made("DD 1")
			time.Sleep(time.Hour)
			found, err = l.Prove(t.Context(), Call{Order: "DD 1", Began: began, Ended: began.Add(2 * time.Second)})
			if err != nil || found.Proof() != Listed {
				t.Errorf("ahead by %v: its own record is taken for an older one: %q, %v", ahead, found.Flaw, err)
			}
		})
	}
}

// What was listed in between shows: the whole list is read before the narrowed one.
func TestTheNarrowedListIsReadLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{}
		if _, err := list(t, s, &enrolled{}).Prove(t.Context(), Call{Order: "DD 1"}); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(s.reads, ","); got != ",DD 1" {
			t.Errorf("read the order numbers %q", got)
		}
	})
}

func TestAListInAnotherZoneThanTheConfiguredOneIsUnderstood(t *testing.T) {
	kathmandu := time.FixedZone("", 5*60*60+45*60)
	for name, zone := range map[string]*time.Location{"UTC": time.UTC, "+05:45": kathmandu, "configured": kualaLumpur} {
		synctest.Test(t, func(t *testing.T) {
			s, e := &service{zone: zone}, &enrolled{}
			l := list(t, s, e)
			prove := func(began time.Time) Listing {
				t.Helper()
				found, err := l.Prove(t.Context(), Call{Order: "DD 1", Began: began, Ended: time.Now()})
				if err != nil {
					t.Fatal(err)
				}
				return found
			}
			time.Sleep(12 * time.Hour)
			s.made("DD 1")
			if got := prove(time.Now().Add(-time.Minute)); got.Proof() != Listed {
				t.Errorf("%s, not learned: its own record is taken for an older one: %+v", name, got)
			}
			if got := prove(time.Now().Add(time.Hour)); got.Proof() != Listed {
				t.Errorf("%s, not learned: a record counts within a day: %+v", name, got)
			}
			e.succeed(s)
			time.Sleep(10 * time.Minute)
			if got := prove(time.Now().Add(-11 * time.Minute)); got.Proof() != Listed {
				t.Errorf("%s, learned: its own record is taken for an older one: %+v", name, got)
			}
			if got := prove(time.Now()); got.Proof() != Nothing || got.Flaw != notNarrowed {
				t.Errorf("%s, learned: an older record is taken for its own: %+v", name, got)
			}
			if got := l.Times.Differs(); (got != "") != (name != "configured") {
				t.Errorf("%s: it says %q", name, got)
			}
		})
	}
}

func TestAnOffsetIsLearnedFromOneCertainRecordAlone(t *testing.T) {
	for what, spoil := range map[string]func(s *service, e *enrolled){
		"the outcome was stored hours later": func(_ *service, e *enrolled) { e.succeeded = e.succeeded.Add(3 * time.Hour) },
		"there is one of another hour":       func(s *service, _ *enrolled) { time.Sleep(time.Hour); s.made("DD 0") },
		"its record is from another time":    func(s *service, _ *enrolled) { s.records[0].made = s.records[0].made.Add(-7 * time.Minute) },
		"it is of the day before":            func(s *service, _ *enrolled) { s.records[0].made = s.records[0].made.Add(-24 * time.Hour) },
		"it is a deduction":                  func(s *service, _ *enrolled) { s.records[0].kind = "Deduction" },
		"it is not listed":                   func(s *service, _ *enrolled) { s.records = nil },
		"none succeeded":                     func(_ *service, e *enrolled) { e.order = "" },
	} {
		synctest.Test(t, func(t *testing.T) {
			s, e := &service{}, &enrolled{}
			l := list(t, s, e)
			e.succeed(s)
			spoil(s, e)
			l.Times.Learn(t.Context())
			if _, slack, _ := l.Times.read("2026-01-02 03:04:05"); slack != unknownOffset {
				t.Errorf("%s: it was learned", what)
			}
			l.Times.Learn(t.Context())
			if len(s.reads) > 1 {
				t.Errorf("%s: the list was asked again at once", what)
			}
		})
	}
}
