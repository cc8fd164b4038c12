package send

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"errand/internal/requests/attempt"
	"errand/internal/sandbox/devkit/devtest"
	"errand/internal/wire/mailbox"
	"errand/pkg/messages"
)

// lines are the texts of a list, one a line; readings counts how often they are read.
func lines(list string, readings *int) func() iter.Seq2[string, error] {
	return func() iter.Seq2[string, error] {
		*readings++
		return func(yield func(string, error) bool) {
			for line := range strings.Lines(list) {
				if !yield(strings.TrimSuffix(line, "\n"), nil) {
					return
				}
			}
		}
	}
}

// addresses are n lines of a list, the first with this number.
func addresses(first, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "reader-%d@example.test\n", first+i)
	}
	return b.String()
}

// What is a duplicate must not depend on how far apart two of a kind are, nor on how often a list is read to find it.
func TestDuplicatesAreFoundHoweverFarApart(t *testing.T) {
	const known = 2000
	for name, c := range map[string]struct {
		list     string
		readings int // to plan; the cutting is one more
	}{
		"short":                    {addresses(0, known/2) + addresses(known/4, known/2), 1},
		"one is all":               {strings.Repeat(addresses(7, 1), 3*known), 1},
		"as many as are known":     {addresses(0, known) + addresses(0, 10), 1},
		"one more":                 {addresses(0, known+1), 2},
		"the first and the last":   {addresses(0, 3*known) + addresses(0, 1), 3},
		"half of the list":         {addresses(0, 2*known) + addresses(0, 2*known), 2},
		"each twice in a row":      {strings.Repeat(addresses(0, 1), 2) + addresses(0, known) + addresses(1, known) + addresses(known, known), 2},
		"each three times":         {strings.Repeat(addresses(0, known+known/2), 3), 2},
		"domains in other letters": {addresses(0, 2*known) + "reader-0@EXAMPLE.test\nReader-0@example.test\nreader-1999@Example.Test\n", 3},
		"faults in every part": {"nobody\n" + addresses(0, known) + "Name <reader-5@example.test>\nno@one@\n" + addresses(0, 2*known) +
			"nobody\n", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			readings := 0
			texts := lines(c.list, &readings)
			p, err := planned(texts, 0, 1000, 1_000_000, known)
			if err != nil {
				t.Fatal(err)
			}
			if readings != c.readings {
				t.Errorf("the list was read %d times to plan, want %d", readings, c.readings)
			}
			wantPlan(t, p, texts, c.list)
		})
	}
}

// Lists of every kind, with so little room that most are read again and again.
func TestAPlanIsThatOfAComparisonOfAllWithAll(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 0))
		room := 1 + r.IntN(40)
		var list strings.Builder
		for range r.IntN(500) {
			switch n := r.IntN(1 + r.IntN(400)); r.IntN(8) {
			case 0:
				fmt.Fprintf(&list, "nobody %d\n", n)
			case 1:
				fmt.Fprintf(&list, "Reader <reader-%d@EXAMPLE.test>\n", n)
			case 2:
				fmt.Fprintf(&list, "reader-%d@bücher.example\n", n)
			case 3:
				fmt.Fprintf(&list, "reader-%d@xn--bcher-kva.example\n", n)
			default:
				list.WriteString(addresses(n, 1))
			}
		}
		readings := 0
		texts := lines(list.String(), &readings)
		p, err := planned(texts, 0, 1+r.IntN(room), 0, room)
		if fault, ok := errors.AsType[listFault](err); ok && p.recipients == 0 && fault == "holds no valid address" {
			err = nil
		}
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if want := max(1, (p.recipients+room-1)/room); readings != want {
			t.Errorf("seed %d: the list was read %d times for %d recipients with room for %d", seed, readings, p.recipients, room)
		}
		if wantPlan(t, p, texts, list.String()); t.Failed() {
			t.Fatalf("seed %d, room for %d", seed, room)
		}
	}
}

// plainly is what a list holds, by a map of all recipients.
func plainly(list string) (to []string, duplicates, faults int) {
	seen := map[string]bool{}
	for text := range strings.Lines(list) {
		address, err := messages.ParseRecipient(strings.TrimSpace(text))
		switch key := string(mailbox.Append(nil, address)); {
		case err != nil:
			faults++
		case seen[key]:
			duplicates++
		default:
			seen[key] = true
			to = append(to, address)
		}
	}
	return to, duplicates, faults
}

// wantPlan wants p to be the plan of the list: its counts, and the first of each
// recipient in order, in full batches but for the last.
func wantPlan(t *testing.T, p plan, texts func() iter.Seq2[string, error], list string) {
	t.Helper()
	want, duplicates, faults := plainly(list)
	if p.recipients != len(want) || p.duplicates != duplicates || p.faults != faults ||
		len(p.invalid) != min(faults, messages.ListedInvalid) ||
		p.batches != (len(want)+p.size-1)/p.size {
		t.Errorf("planned %d recipients in %d batches, %d duplicates, %d invalid; want %d, %d, %d", p.recipients, p.batches, p.duplicates,
			p.faults, len(want), duplicates, faults)
	}
	if p.kept != nil && !slices.Equal(p.kept, want) || p.kept == nil && p.batches == 1 || len(p.kept) > max(p.size, maxKept) {
		t.Errorf("%d recipients are kept of %d in %d batches", len(p.kept), len(want), p.batches)
	}
	var got []string
	for b, err := range p.cut(texts()) {
		if err != nil {
			t.Fatal(err)
		}
		if b.first != len(got) || b.number != b.first/p.size+1 || len(b.to) != min(p.size, len(want)-b.first) {
			t.Errorf("batch %d begins at %d with %d recipients", b.number, b.first, len(b.to))
		}
		got = append(got, b.to...)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%d recipients cut, want %d; first difference: %s", len(got), len(want),
			cmp.Diff(want[:min(3, len(want))], got[:min(3, len(got))]))
	}
}

func TestAListBeyondItsLimitIsRefused(t *testing.T) {
	const known = 2000
	for name, c := range map[string]struct {
		list  string
		limit int
		rule  string
	}{
		"as many as the limit":       {addresses(0, 50) + addresses(0, 50), 50, ""},
		"one more":                   {addresses(0, 51), 50, "holds more than 50 recipients"},
		"far more":                   {addresses(0, 500), 50, "holds more than 50 recipients"},
		"long, as many as the limit": {addresses(0, known+500) + addresses(0, known+500), known + 500, ""},
		"long, one more":             {addresses(0, known+501), known + 500, fmt.Sprintf("holds more than %d recipients", known+500)},
		"duplicates without end": {strings.Repeat(addresses(0, 1), 101), 50,
			"holds more than 100 addresses, with duplicates and invalid ones"},
		"invalid addresses, likewise": {strings.Repeat("nobody\n", 101), 50, "holds more than 100 addresses, with duplicates and invalid ones"},
		"no limit":                    {addresses(0, 51), 0, ""},
		"nothing":                     {"", 50, "holds no valid address"},
	} {
		t.Run(name, func(t *testing.T) {
			readings := 0
			_, err := planned(lines(c.list, &readings), 0, 1000, c.limit, known)
			fault, _ := errors.AsType[listFault](err)
			if string(fault) != c.rule || err != nil && c.rule == "" {
				t.Errorf("got %v, want %q", err, c.rule)
			}
			if c.rule != "" && readings > 2 {
				t.Errorf("the list was read %d times to refuse it", readings)
			}
		})
	}
}

// What is invalid is reported also when nothing else is there.
func TestAListWithoutARecipientSaysWhatItHolds(t *testing.T) {
	p, err := planned(lines("nobody\nno@one@\n", new(int)), 0, 1000, 0, room)
	want := []messages.InvalidAddress{{Address: "nobody", Reason: "is not an email address"},
		{Address: "no@one@", Reason: "is not an email address"}}
	if diff := cmp.Diff(want, p.invalid); diff != "" || p.faults != 2 || err == nil {
		t.Errorf("%v, %d invalid (-want +got):\n%s", err, p.faults, diff)
	}
}

// A list whose batches are sent at once is in memory anyway: it is not read again to be cut.
func TestAShortListIsReadOnce(t *testing.T) {
	for n, want := range map[int]int{1: 1, 1001: 1, maxKept: 1, maxKept + 1: 2} {
		list, readings := addresses(0, n)+addresses(0, 1), 0
		texts := lines(list, &readings)
		p, err := planned(texts, 0, 1000, 0, room)
		if err != nil {
			t.Fatal(err)
		}
		wantPlan(t, p, func() iter.Seq2[string, error] {
			return func(yield func(string, error) bool) { texts()(yield) }
		}, list)
		if readings != want {
			t.Errorf("a list of %d recipients was read %d times, want %d", n, readings, want)
		}
	}
}

func TestPlanningAMillionRecipientsTakesTenReadingsAndLittleMemory(t *testing.T) {
	devtest.Full(t)
	list := addresses(0, 1_000_000) + addresses(0, 1000)
	readings := 0
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := planned(lines(list, &readings), 0, 1000, 0, room); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if readings != 10 {
		t.Errorf("the list was read %d times", readings)
	}
	t.Logf("%d KiB", (after.TotalAlloc-before.TotalAlloc)>>10)
	if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 12 {
		t.Errorf("planning allocated %d MiB", took)
	}
}

// listed is a message whose recipients are in an object.
func listed(object io.Reader) *message {
	return &message{size: 1000, request: attempt.Request[messages.SendRequest]{Body: messages.SendRequest{ToObject: &messages.ObjectRef{}}},
		Handler: &Handler{Caller: &attempt.Caller{},
			Open: func(context.Context, messages.ObjectRef) (io.Reader, int64, error) { return object, 0, nil }}}
}

// What cannot be read to its end is not sent as if it were shorter.
func TestAListThatBreaksOffIsNotCutShort(t *testing.T) {
	broken := errors.New("broken off")
	const n = 2*maxKept + 500 // it is read again to be cut
	p, err := listed(strings.NewReader(addresses(0, n))).makePlan(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	half := func() io.Reader { return io.MultiReader(strings.NewReader(addresses(0, 1200)), failing{broken}) }
	var sizes []int
	var last error
	for b, err := range p.cut(listed(half()).texts(t.Context())) {
		if last = err; err == nil {
			sizes = append(sizes, len(b.to))
		}
	}
	if !slices.Equal(sizes, []int{1000}) || !errors.Is(last, broken) {
		t.Errorf("cut %v, then %v", sizes, last)
	}
	if _, err := listed(half()).makePlan(t.Context(), false); !errors.Is(err, broken) {
		t.Errorf("planned with %v", err)
	}
}

func TestAListBeyondTheLimitIsAnInvalidRequest(t *testing.T) {
	m := listed(strings.NewReader(addresses(0, 11)))
	m.MaxRecipients = 10
	_, err := m.makePlan(t.Context(), false)
	if got, ok := errors.AsType[*invalidError](err); !ok || *got != (invalidError{"to_object", "holds more than 10 recipients"}) {
		t.Errorf("got %v", err)
	}
	m = listed(strings.NewReader(addresses(0, 11)))
	m.MaxRecipients = 10
	if p, err := m.makePlan(t.Context(), true); err != nil || p.recipients != 11 {
		t.Errorf("begun before the limit was lowered: %d recipients, %v", p.recipients, err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
