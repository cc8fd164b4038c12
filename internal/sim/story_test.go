package sim

import (
	"fmt"
	"strings"
	"time"
)

// line is one line of a history's story.
type line struct {
	at     time.Time
	format string
	args   []any
}

func (l line) text(began time.Time) string {
	return fmt.Sprintf("%10s  %s", l.at.Sub(began).Round(time.Millisecond), fmt.Sprintf(l.format, l.args...))
}

func (w *world) at(t time.Time) string { return t.Sub(w.began).Round(time.Millisecond).String() }

// tell adds a line to the story. What it is told of must not change.
func (w *world) tell(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, a := range args {
		if c, ok := a.(*call); ok {
			args[i] = c.String()
		}
	}
	w.tale = append(w.tale, line{time.Now(), format, args})
}

// story is what happened: the beginning and, of a long one, the end, where the promise is broken.
func (w *world) story(most int) string {
	var b strings.Builder
	kind := "enrollments"
	if w.Mail {
		kind = "messages"
	}
	fmt.Fprintf(&b, "seed %d: %s, %d replicas, CONCURRENCY %d, RATE %g, %d at once, %d tries, given up after %v, events kept %v\n",
		w.seed, kind, w.Replicas, w.Concurrency, w.Rate, w.Parallel, w.Tries, w.GiveUp, w.Kept)
	for _, r := range w.Requests {
		fmt.Fprintf(&b, "  %s %s: %d recipients, on_unknown %q, give_up_at %v, each call %q\n", r.ID, r.Kind, r.To, r.OnUnknown, r.GiveUpAt,
			r.Poison)
	}
	for i, l := range w.tale {
		if cut := len(w.tale) - most; cut > 0 && i >= most/4 && i < most/4+cut {
			if i == most/4 {
				fmt.Fprintf(&b, "            … %d lines\n", cut)
			}
			continue
		}
		b.WriteString(l.text(w.began) + "\n")
	}
	return b.String()
}
