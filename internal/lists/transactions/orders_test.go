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

	"errand/internal/sandbox/devkit/inshort"
)

// enrollments are events that announce calls, by sequence from 1.
type enrollments struct {
	events []Candidate
	given  int
	first  uint64 // older ones are kept no more
	err    error
	read   int // requests
}

func (e *enrollments) start(request, order string) {
	e.events = append(e.events, Candidate{uint64(len(e.events) + 1), request, order, time.Now(), false})
}

func (e *enrollments) fail(request, order string) {
	e.start(request, order)
	e.events[len(e.events)-1].Failed = true
}

func (e *enrollments) Candidates(context.Context) iter.Seq2[Candidate, error] {
	return func(yield func(Candidate, error) bool) {
		for e.given < len(e.events) && e.err == nil {
			e.given++
			if e.events[e.given-1].Sequence >= e.first && !yield(e.events[e.given-1], nil) {
				return
			}
		}
		if e.err != nil {
			yield(Candidate{}, e.err)
		}
	}
}

func (e *enrollments) Request(_ context.Context, sequence uint64) (string, error) {
	e.read++
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

// What failed without effect, or was corrected to another number, has no record.
func TestARequestThatFailedWithoutEffectIsNoCandidate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, o := &enrollments{}, &orders{}
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

// A deduction costs one read at most, and names its request only where that is certain.
func TestADeductionListsNoCandidates(t *testing.T) {
	e, o := &enrollments{}, &orders{}
	e.start("r1", "ONE")
	e.start("r1", "TWO")
	e.start("r2", "TWO")
	for order, want := range map[string]string{"ONE": "exact r1", "TWO": "ambiguous", "NONE": "none"} {
		e.read = 0
		if got := e.match(t, o, `{"transaction_type":"Deduction","mandate":{"order_number":"`+order+`"}}`); got != want || e.read > 1 {
			t.Errorf("of %s it is %q after %d reads, want %q", order, got, e.read, want)
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
		if got := e.match(t, o, ofOrder("TEST")); got != "none" || len(o.places) != 0 {
			t.Errorf("%q, and %d are known", got, len(o.places))
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

func (m *many) Candidates(context.Context) iter.Seq2[Candidate, error] {
	return func(yield func(Candidate, error) bool) {
		for i := range m.n {
			if !yield(Candidate{i + 1, fmt.Sprint("request-", i), fmt.Sprint("DD", i), time.Time{}, false}, nil) {
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
	if each > 100 || len(o.places) != n {
		t.Errorf("%d order numbers take %.1f bytes each", len(o.places), each)
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
