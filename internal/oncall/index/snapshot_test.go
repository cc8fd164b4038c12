package index

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"errand/internal/bus"
)

// A request that goes on while a page is made is counted once and listed once, as it was before or as it is after.
func TestAQuestionSeesOneStateOfTheIndex(t *testing.T) {
	t.Parallel()
	x, err := Open(Options{Dir: t.TempDir(), Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = x.Close() })
	w, err := newWriter(x.store)
	if err != nil {
		t.Fatal(err)
	}
	goesOn := func(n uint64) {
		body := fmt.Sprintf(`{"reason":%q}`, []string{"refused", "unavailable"}[n%2])
		m := bus.Message{Subject: "mandate.enroll.failed.a", Sequence: n, Time: time.Now(), Data: []byte(body)}
		if err := w.put(x.gather([]bus.Message{m}), Position{Stream: bus.MandateEvents, Indexed: n, At: m.Time}); err != nil {
			t.Error(err)
		}
	}
	goesOn(1)
	end := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := uint64(2); ; n++ {
			select {
			case <-end:
				return
			default:
				goesOn(n)
			}
		}
	})
	for range 300 {
		counts, err := x.Counts(t.Context())
		if err != nil || len(counts) != 1 || counts[0].Count != 1 || counts[0].At.IsZero() {
			t.Errorf("counted: %v, %v, want one request", counts, err)
		}
		page, err := x.Requests(t.Context(), Filter{})
		if err != nil || len(page.Rows) != 1 || page.Rows[0].Reason == "" {
			t.Errorf("listed: %v, %v, want one request", page.Rows, err)
		}
		if t.Failed() {
			break
		}
	}
	close(end)
	wg.Wait()
	if err := w.close(); err != nil {
		t.Error(err)
	}
}
