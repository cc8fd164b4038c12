package transactions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"errand/internal/history"
	"errand/internal/lists"
	"errand/internal/lists/sweep"
	"errand/internal/sandbox/devkit/inshort"
	"errand/pkg/messages"
)

// enrollments are events that announce calls, or that these failed without effect.
type enrollments struct {
	published messages.Event // the last one
	lists.Store
	events []history.Entry
	given  int
	err    error
}

func (e *enrollments) start(request, order string) { e.put(messages.Started, request, order) }
func (e *enrollments) fail(request, order string)  { e.put(messages.Failed, request, order) }

func (e *enrollments) put(state messages.State, request, order string) {
	body, err := json.Marshal(map[string]any{"order_number": order})
	if err != nil {
		panic(err)
	}
	e.events = append(e.events, history.Entry{Subject: messages.Enroll.Subject(state, request), At: time.Now(), Body: body})
}

func (e *enrollments) Publish(_ context.Context, events []messages.Event) func() (int, error) {
	e.published = events[len(events)-1]
	return sweep.Done(len(events), nil)
}

func (e *enrollments) Reset() { e.given = 0 }

func (e *enrollments) Requests(_ context.Context, _ time.Time, take func(history.Entry) error) error {
	for e.given < len(e.events) && e.err == nil {
		e.given++
		if err := take(e.events[e.given-1]); err != nil {
			return err
		}
	}
	return e.err
}

// match is the request that a record's event names, or the requests that it may be of.
func (e *enrollments) match(t *testing.T, o orders, raw string) string {
	t.Helper()
	if err := o.update(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	m := o.match(read(json.RawMessage(raw), inUTC))
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
	o := orders{}
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

// What failed without effect, or was corrected to another number, has no record.
func TestARequestThatFailedWithoutEffectIsNoCandidate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, o := &enrollments{}, orders{}
		stranger := fmt.Sprintf(`{"transaction_type":"Deduction","created_at":%q,"mandate":{"order_number":"DD1"}}`,
			time.Now().UTC().Format(time.DateTime))
		e.start("r1", "DD1")
		e.fail("r1", "dd1")
		if got := e.match(t, o, stranger); got != "none" {
			t.Errorf("another's deduction with the number of a refused request is %q", got)
		}
		e.start("r2", "DD1")
		if got := e.match(t, o, ofOrder("DD1")); got != "exact r2" {
			t.Errorf("of a refused one and one that was not, it is %q", got)
		}
		e.start("r3", "DD3")
		e.fail("r3", "DD3")
		e.start("r3", "DD4")
		if old, corrected := e.match(t, o, ofOrder("DD3")), e.match(t, o, ofOrder("DD4")); old != "none" || corrected != "exact r3" {
			t.Errorf("with the number before the correction it is %q, with the other %q", old, corrected)
		}
		e.start("r1", "DD1") // as it was, again
		if got := e.match(t, o, ofOrder("DD1")); got != "ambiguous r2 r1" {
			t.Errorf("of two it is %q", got)
		}
		for i := range 2 * maxCandidates {
			e.start(fmt.Sprint("many", i), "TEST")
		}
		for i := range 4 * maxCandidates {
			e.start(fmt.Sprint("refused", i), "TEST")
			e.fail(fmt.Sprint("refused", i), "TEST")
		}
		if got := e.match(t, o, ofOrder("TEST")); !strings.HasPrefix(got, "ambiguous many0") {
			t.Errorf("of twenty, and many that were refused, it is %q", got)
		}
	})
}

// A deduction names its request only where that is certain.
func TestADeductionListsNoCandidates(t *testing.T) {
	e, o := &enrollments{}, orders{}
	e.start("r1", "ONE")
	e.start("r1", "TWO")
	e.start("r2", "TWO")
	for order, want := range map[string]string{"ONE": "exact r1", "TWO": "ambiguous", "NONE": "none"} {
		if got := e.match(t, o, `{"transaction_type":"Deduction","mandate":{"order_number":"`+order+`"}}`); got != want {
			t.Errorf("of %s it is %q, want %q", order, got, want)
		}
	}
}

// A record that was made long before the first call of a request is of an earlier enrollment with
// the same order number, whose events are no longer kept.
func TestAnOrderNumberThatIsUsedAgainDoesNotTakeOldRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, o := &enrollments{}, orders{}
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
		o.forget(again)
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

// A stream that was made again has nothing of the requests that were known.
func TestAStreamThatWasMadeAgainGivesNoRecordToAnotherRequest(t *testing.T) {
	e := &enrollments{}
	l := New(Config{Store: e, Times: inUTC})
	e.start("r1", "DD1")
	if got := e.match(t, l.orders, ofOrder("DD1")); got != "exact r1" {
		t.Fatal(got)
	}
	*e = enrollments{}
	l.Reset()
	e.start("r2", "DD2")
	if got := e.match(t, l.orders, ofOrder("DD1")); got != "none" {
		t.Errorf("a record of a request that is gone is %q", got)
	}
	e.start("r3", "DD1")
	if got := e.match(t, l.orders, ofOrder("DD1")); got != "exact r3" {
		t.Errorf("a record of one that came since is %q", got)
	}
}

// An order number that very many requests have costs no more than one that some have, and is that
// of one request again when the others are no longer kept.
func TestManyRequestsWithOneOrderNumberAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 50_000
		e, o := &enrollments{}, orders{}
		for i := range n - 1 {
			e.start(fmt.Sprint("r", i), "TEST")
		}
		time.Sleep(time.Second)
		last := time.Now()
		e.start(fmt.Sprint("r", n-1), "TEST")
		time.Sleep(time.Second)
		e.start("r5", "TEST")
		m := strings.Fields(e.match(t, o, ofOrder("TEST")))
		if len(m) != 1+maxCandidates || m[0] != "ambiguous" || m[len(m)-1] != "r5" || len(o[fold("TEST")]) > 2*maxCandidates {
			t.Errorf("%q", m)
		}
		for _, c := range []struct {
			before time.Time
			want   string
		}{{last, fmt.Sprintf("ambiguous r%d r5", n-1)}, {last.Add(time.Second), "exact r5"}, {last.Add(2 * time.Second), "none"}} {
			o.forget(c.before)
			if got := e.match(t, o, ofOrder("TEST")); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		}
		if len(o) != 0 {
			t.Errorf("%d order numbers are known", len(o))
		}
	})
}

// Without an answer nothing is known, which is neither a match nor an event.
func TestEnrollmentsThatCannotBeReadAreAnError(t *testing.T) {
	e := &enrollments{}
	l := New(Config{Store: e, Times: inUTC})
	e.start("r1", "DD1")
	e.match(t, l.orders, ofOrder("DD1"))
	e.err = errors.New("no answer")
	rows := l.rows([]json.RawMessage{json.RawMessage(ofOrder("DD1"))}, time.Now(), "")
	if stored, err := l.Publish(t.Context(), rows)(); stored != 0 || !errors.Is(err, e.err) {
		t.Errorf("%d stored, %v", stored, err)
	}
	e.err = nil
	if got := e.match(t, l.orders, ofOrder("DD1")); got != "exact r1" {
		t.Errorf("then it is %q", got)
	}
}

// many returns many order numbers.
type many struct {
	enrollments
	n uint64
}

func (m *many) Requests(_ context.Context, _ time.Time, take func(history.Entry) error) error {
	for i := range m.n {
		err := take(history.Entry{Subject: messages.Enroll.Subject(messages.Started, fmt.Sprint("request-", i)), At: time.Now(),
			Body: fmt.Appendf(nil, `{"order_number":"DD%d"}`, i)})
		if err != nil {
			return err
		}
	}
	return nil
}

func TestAnOrderNumberTakesLittleMemory(t *testing.T) {
	n := inshort.Choose(t, 1<<17, 1<<14)
	o, before := orders{}, heap()
	if err := o.update(t.Context(), &many{n: uint64(n)}); err != nil {
		t.Fatal(err)
	}
	each := float64(heap()-before) / float64(n)
	t.Logf("%.1f bytes an order number", each)
	if each > 130 || len(o) != n {
		t.Errorf("%d order numbers take %.1f bytes each", len(o), each)
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// kept is a stream that says since when it keeps events.
type kept struct {
	enrollments
	since time.Time
}

func (k *kept) Kept(context.Context) (time.Time, error) { return k.since, nil }

// The first event of a young stream was erased, so it says that it keeps all since an hour after it: a request of that hour is known.
func TestARequestIsKnownAsLongAsItsEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := time.Now()
		k := &kept{since: first.Add(time.Hour)}
		l := New(Config{Store: k, Times: inUTC})
		k.start("r1", "DD1")
		for _, again := range []bool{false, true} {
			want := "exact r1"
			if again {
				k.since, want = first.Add(time.Hour+time.Minute), "none"
			}
			k.match(t, l.orders, ofOrder("DD1"))
			if _, err := l.Kept(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := k.match(t, l.orders, ofOrder("DD1")); got != want {
				t.Errorf("kept since %v: %q, want %q", k.since.Sub(first), got, want)
			}
		}
	})
}
