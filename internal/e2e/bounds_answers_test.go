//go:build linux

package e2e

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

// endless is an upstream whose answers have no end. The first 500 KiB of as many as are
// made at once are all there before any goes on.
type endless struct {
	workers      int64
	begun, ended atomic.Int64
	all          chan struct{} // closed when every worker has the beginning
	beginning    []byte
}

func (e *endless) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	if r.Method != http.MethodPost {
		http.Error(w, "busy", http.StatusServiceUnavailable)
		return
	}
	defer e.ended.Add(1)
	_, _ = w.Write(e.beginning)
	_ = http.NewResponseController(w).Flush()
	if e.begun.Add(1) == e.workers {
		close(e.all)
	}
	select {
	case <-e.all:
	case <-r.Context().Done():
		return
	}
	for {
		if _, err := w.Write(e.beginning); err != nil {
			return
		}
	}
}

// An answer is read to 512 KiB and no further. Grown into and not yet collected, that is
// at most four times as much for each worker.
func TestEndlessAnswersToAllWorkersTakeBoundedMemory(t *testing.T) {
	t.Parallel()
	const workers = 63 // the last one waits at the program's other queue
	const bound = workers * 4 * 512
	for _, c := range writes {
		t.Run(c.program, func(t *testing.T) {
			upstream := &endless{workers: workers, all: make(chan struct{}), beginning: bytes.Repeat([]byte("["), 500<<10)}
			web := httptest.NewServer(upstream)
			t.Cleanup(web.Close)
			in := install(t, "CONCURRENCY=64", "LOG_LEVEL=info", "UPSTREAM_TIMEOUT=30s", "MANDATE_API_URL="+web.URL, "MAIL_API_URL="+web.URL)
			p := in.start(c.program)
			in.until("its pull to wait", time.Minute, func() bool { return in.queue(c.queue).NumWaiting == 1 })
			before := p.peak()
			in.pile(c.queue, "r", workers, c.request)
			in.until("all workers to have had enough", time.Minute, func() bool { return upstream.ended.Load() >= workers })
			if took := p.peak() - before; took > bound {
				t.Errorf("%d endless answers took %d KiB, want at most %d", workers, took, bound)
			} else {
				t.Logf("%d endless answers: %d KiB, before them %d", workers, took, before)
			}
		})
	}
}
