package transactions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"errand/internal/sandbox/devkit/inshort"
	"errand/pkg/messages"
)

// enrollments are events that announce calls, by sequence from 1.
type enrollments struct {
	events []Started
	given  int
	first  uint64 // older ones are kept no more
	err    error
}

func (e *enrollments) start(request, order string) {
	e.events = append(e.events, Started{uint64(len(e.events) + 1), request, order, time.Now()})
}

func (e *enrollments) Started(context.Context) iter.Seq2[Started, error] {
	return func(yield func(Started, error) bool) {
		for e.given < len(e.events) && e.err == nil {
			e.given++
			if e.events[e.given-1].Sequence >= e.first && !yield(e.events[e.given-1], nil) {
				return
			}
		}
		if e.err != nil {
			yield(Started{}, e.err)
		}
	}
}

func (e *enrollments) Request(_ context.Context, sequence uint64) (string, error) {
	if sequence < e.first {
		return "", nil
	}
	return e.events[sequence-1].Request, e.err
}

func (e *enrollments) First(context.Context) (uint64, error) { return e.first, e.err }

// match is the request that a record's event names, or the requests that it may be of.
func (e *enrollments) match(t *testing.T, o *orders, raw string) string {
	t.Helper()
	if err := o.update(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	m, err := o.match(t.Context(), e, read(json.RawMessage(raw), inUTC))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(append([]string{string(m.Confidence)}, m.Candidates...), " ")
}

func ofOrder(order string) string { return `{"mandate":{"order_number":"` + order + `"}}` }

// A record is of the request whose order number its mandate has, if that is one alone.
func TestARecordIsOfTheOneRequestWithItsOrderNumber(t *testing.T) {
	long := strings.Repeat("0123456789", 60)
	e := &enrollments{}
	e.start("r1", "DD 001")
	e.start("r1", "DD 001") // its second call
	e.start("r2", "TWICE")
	e.start("r3", "twi ce")
	e.start("r2", "TWICE")
	e.start("r4", "DD001-1")
	e.start("r5", "77")
	e.start("r6", long+"a")
	o := &orders{}
	for raw, want := range map[string]string{
		ofOrder("DD 001"):                                     "exact r1",
		ofOrder("dd001"):                                      "exact r1",
		ofOrder(" D d 0 0 1 "):                                "exact r1",
		ofOrder("DD002"):                                      "none",
		ofOrder("Twice"):                                      "ambiguous r2 r3",
		`{"mandate":{"order_number":77}}`:                     "exact r5",
		`{"order_number":77,"mandate":null}`:                  "exact r5",
		ofOrder(long + "a"):                                   "exact r6",
		ofOrder(long + "b"):                                   "none", // though events cut both alike
		`{"order_number":"","mandate":{}}`:                    "none",
		`{"order_number":" ","mandate":{"order_number":" "}}`: "none",
		`{}`: "none", `null`: "none",
		// The number of the application itself counts where its mandate has none, or another.
		`{"order_number":"DD001","mandate":{"order_number":""}}`:        "exact r1",
		`{"order_number":"DD001-9","mandate":{"order_number":"DD001"}}`: "exact r1",
		`{"order_number":"DD001-1","mandate":{"order_number":"DD001"}}`: "ambiguous r1 r4",
		`{"order_number":"DD001","mandate":{"order_number":"ELSE"}}`:    "ambiguous r1",
		// That of a deduction does not: it may look like another request's.
		`{"transaction_type":"Deduction","order_number":"DD001-1","mandate":{"order_number":"DD001"}}`: "exact r1",
		`{"transaction_type":"Deduction","order_number":"DD001-1","mandate":null}`:                     "none",
		`{"transaction_type":"Deduction","order_number":"DD001","mandate":{"order_number":"ELSE"}}`:    "none",
	} {
		if got := e.match(t, o, raw); got != want {
			t.Errorf("%.200s is %q, want %q", raw, got, want)
		}
	}
}

// A record that was made long before the first call of a request is of an earlier enrollment with
// the same order number, whose events are kept no more.
func TestAnOrderNumberThatIsUsedAgainDoesNotTakeOldRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, o := &enrollments{}, &orders{}
		made := func(at time.Time) string {
			return fmt.Sprintf(`{"created_at":%q,"mandate":{"order_number":"DD1"}}`, at.UTC().Format(time.DateTime))
		}
		first := time.Now()
		e.start("old", "DD1")
		if got := e.match(t, o, made(first)); got != "exact old" {
			t.Errorf("its record is %q", got)
		}
		time.Sleep(40 * 24 * time.Hour)
		again := time.Now()
		e.start("new", "DD1")
		if got := e.match(t, o, made(first)); got != "ambiguous old new" {
			t.Errorf("while both are known the old record is %q", got)
		}
		e.first = 2
		for range 2 { // its further calls do not make it younger
			time.Sleep(30 * time.Hour)
			e.start("new", "DD1")
			e.match(t, o, made(again))
		}
		for at, want := range map[time.Time]string{first: "none", again.Add(-25 * time.Hour): "none", again.Add(-8 * time.Hour): "exact new",
			again: "exact new"} {
			if got := e.match(t, o, made(at)); got != want {
				t.Errorf("a record of %v is %q, want %q", at, got, want)
			}
		}
		if got := e.match(t, o, ofOrder("DD1")); got != "exact new" {
			t.Errorf("a record of unknown age is %q", got)
		}
	})
}

// What is at the sequence of a request's event may be of another request: the stream was made again.
func TestAStreamThatWasMadeAgainGivesNoRecordToAnotherRequest(t *testing.T) {
	e, o := &enrollments{}, &orders{}
	e.start("r1", "DD1")
	if got := e.match(t, o, ofOrder("DD1")); got != "exact r1" {
		t.Fatal(got)
	}
	*e = enrollments{}
	e.start("r2", "DD2")
	if got := e.match(t, o, ofOrder("DD1")); got != "none" {
		t.Errorf("a record of a request that is gone is %q", got)
	}
	e.start("r3", "DD1")
	if got := e.match(t, o, ofOrder("DD1")); got != "exact r3" {
		t.Errorf("a record of one that came since is %q", got)
	}
}

// An order number that very many requests have costs no more than one that some have, and is that
// of one request again when the others are kept no more.
func TestManyRequestsWithOneOrderNumberAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 50_000
		e, o := &enrollments{}, &orders{}
		for i := range n {
			e.start(fmt.Sprint("r", i), "TEST")
		}
		e.start("r5", "TEST")
		m := strings.Fields(e.match(t, o, ofOrder("TEST")))
		if len(m) != 1+maxCandidates || m[0] != "ambiguous" || m[len(m)-1] != "r5" {
			t.Errorf("%q", m)
		}
		e.first = n
		time.Sleep(2 * forgetEvery)
		if got, want := e.match(t, o, ofOrder("TEST")), fmt.Sprintf("ambiguous r%d r5", n-1); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		e.first = n + 1
		time.Sleep(2 * forgetEvery)
		if got := e.match(t, o, ofOrder("TEST")); got != "exact r5" {
			t.Errorf("%q", got)
		}
		e.first = n + 2
		time.Sleep(2 * forgetEvery)
		if got := e.match(t, o, ofOrder("TEST")); got != "none" || len(o.first)+len(o.more) != 0 {
			t.Errorf("%q, and %d are known", got, len(o.first))
		}
	})
}

// Without an answer nothing is known, which is no match and no event.
func TestAMatchThatCannotBeReadIsAnError(t *testing.T) {
	e, o := &enrollments{}, &orders{}
	e.start("r1", "DD1")
	e.match(t, o, ofOrder("DD1"))
	e.err = errors.New("no answer")
	if _, err := o.match(t.Context(), e, read(json.RawMessage(ofOrder("DD1")), inUTC)); !errors.Is(err, e.err) {
		t.Errorf("match: %v", err)
	}
	if err := o.update(t.Context(), e); !errors.Is(err, e.err) {
		t.Errorf("update: %v", err)
	}
	e.err = nil
	if got := e.match(t, o, ofOrder("DD1")); got != "exact r1" {
		t.Errorf("then it is %q", got)
	}
}

// many gives many order numbers.
type many struct {
	enrollments
	n uint64
}

func (m *many) Started(context.Context) iter.Seq2[Started, error] {
	return func(yield func(Started, error) bool) {
		for i := range m.n {
			if !yield(Started{i + 1, fmt.Sprint("request-", i), fmt.Sprint("DD", i), time.Time{}}, nil) {
				return
			}
		}
	}
}

func TestAnOrderNumberTakesLittleMemory(t *testing.T) {
	n := inshort.Choose(t, 1<<17, 1<<14)
	var o orders
	before := heap()
	if err := o.update(t.Context(), &many{n: uint64(n)}); err != nil {
		t.Fatal(err)
	}
	each := float64(heap()-before) / float64(n)
	t.Logf("%.1f bytes an order number", each)
	if each > 100 || len(o.first) != n {
		t.Errorf("%d order numbers take %.1f bytes each", len(o.first), each)
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// What Earlier gives are the states that any record was in as far as is known, by this process or,
// after a restart, by the events: a few, whatever the service calls its states.
func TestTheStatesOfRecordsAreKnownAfterARestart(t *testing.T) {
	for _, c := range []struct {
		learned []messages.State
		want    []messages.State
	}{
		{nil, nil},
		{[]messages.State{"new", messages.Erased, "approved", "new"}, []messages.State{"new"}},
	} {
		l := New(Config{Times: inUTC})
		for _, s := range c.learned {
			l.learned(s)
		}
		row := l.rows([]json.RawMessage{json.RawMessage(`{"id":"1","status_description":"Approved"}`)})[0]
		var want []string
		for _, s := range c.want {
			want = append(want, fmt.Sprint(row.Item.id(s)))
		}
		var got []string
		for _, id := range l.Earlier(row) {
			got = append(got, fmt.Sprint(id))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%v (-want +got):\n%s", c.learned, diff)
		}
	}
	l := New(Config{Times: inUTC})
	for i := range 10 * maxStatuses {
		l.learned(messages.State(fmt.Sprint("failed_ref_", i)))
	}
	if len(l.statuses) > maxStatuses {
		t.Errorf("%d states are remembered", len(l.statuses))
	}
}
