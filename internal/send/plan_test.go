package send

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"errand/internal/history"
	"errand/pkg/messages"
)

// listed is a task whose recipients are in an object; opened counts the readings.
func listed(text string, opened *int) *task {
	t := &task{Request: history.Request[messages.SendRequest]{Body: messages.SendRequest{ToObject: &messages.ObjectRef{}}},
		Handler: &Handler{Open: func(context.Context, messages.ObjectRef) (io.ReadCloser, error) {
			*opened++
			return io.NopCloser(strings.NewReader(text)), nil
		}}}
	t.plan.size = 1000
	return t
}

// addresses are n lines of a list, the first with this number.
func addresses(first, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "reader-%d@example.test\n", first+i)
	}
	return b.String()
}

// A list is compared with itself part by part: what is a duplicate must not depend on
// how far apart two of a kind are, nor on the parts.
func TestDuplicatesAreFoundHoweverFarApart(t *testing.T) {
	for name, c := range map[string]struct {
		list     string
		readings int // to plan; the cutting is one more
	}{
		"short":                    {addresses(0, 3000) + addresses(1500, 3000), 1},
		"one is all":               {strings.Repeat(addresses(7, 1), 3*known), 1},
		"exactly what is known":    {addresses(0, known), 1},
		"one more":                 {addresses(0, known+1), 2},
		"the first and the last":   {addresses(0, 3*known) + addresses(0, 1), 3},
		"half of the list":         {addresses(0, 2*known) + addresses(0, 2*known), 2},
		"each twice in a row":      {strings.Repeat(addresses(0, 1), 2) + addresses(0, known) + addresses(1, known) + addresses(known, known), 2},
		"the last part in itself":  {addresses(0, 2*known) + addresses(3*known, 500) + addresses(3*known, 500), 3},
		"domains in other letters": {addresses(0, 2*known) + "reader-0@EXAMPLE.test\nReader-0@example.test\nreader-199999@Example.Test\n", 3},
		"faults in every part":     {"nobody\n" + addresses(0, known) + "Name <reader-5@example.test>\nno@one@\n" + addresses(0, 2*known) + "nobody\n", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opened := 0
			task := listed(c.list, &opened)
			if err := task.makePlan(t.Context()); err != nil {
				t.Fatal(err)
			}
			if opened != c.readings {
				t.Errorf("the list was read %d times to plan, want %d", opened, c.readings)
			}
			want, duplicates, faults := byHand(c.list)
			p := &task.plan
			if p.recipients != len(want) || p.duplicates != duplicates || p.faults != faults || len(p.invalid) != min(faults, messages.ListedInvalid) ||
				p.batches != (len(want)+999)/1000 {
				t.Errorf("planned %d recipients in %d batches, %d duplicates, %d invalid; want %d, %d, %d", p.recipients, p.batches, p.duplicates, p.faults, len(want), duplicates, faults)
			}
			if p.batches > 1 {
				wantCut(t, task, want)
			}
		})
	}
}

// byHand is what a list holds, the plain way.
func byHand(list string) (to []string, duplicates, faults int) {
	seen := map[[16]byte]bool{}
	for text := range strings.Lines(list) {
		address, err := messages.ParseRecipient(strings.TrimSpace(text))
		switch key := messages.RecipientKey(address); {
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

// wantCut wants these recipients in order, in full batches but for the last.
func wantCut(t *testing.T, task *task, want []string) {
	t.Helper()
	var got []string
	for b, err := range task.cut(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if b.first != len(got) || b.number != b.first/1000+1 || len(b.to) != min(1000, len(want)-b.first) {
			t.Errorf("batch %d begins at %d with %d recipients", b.number, b.first, len(b.to))
		}
		got = append(got, b.to...)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%d recipients cut, want %d; first difference: %s", len(got), len(want), cmp.Diff(want[:min(3, len(want))], got[:min(3, len(got))]))
	}
}

// What cannot be read to its end is not sent as if it were shorter.
func TestAListThatBreaksOffIsNotCutShort(t *testing.T) {
	broken := errors.New("broken off")
	opened := 0
	task := listed(addresses(0, 2500), &opened)
	if err := task.makePlan(t.Context()); err != nil {
		t.Fatal(err)
	}
	task.Open = func(context.Context, messages.ObjectRef) (io.ReadCloser, error) {
		return io.NopCloser(io.MultiReader(strings.NewReader(addresses(0, 1200)), failing{broken})), nil
	}
	var sizes []int
	var last error
	for b, err := range task.cut(t.Context()) {
		if last = err; err == nil {
			sizes = append(sizes, len(b.to))
		}
	}
	if !slices.Equal(sizes, []int{1000}) || !errors.Is(last, broken) {
		t.Errorf("cut %v, then %v", sizes, last)
	}
	if err := task.makePlan(t.Context()); !errors.Is(err, broken) {
		t.Errorf("planned with %v", err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
