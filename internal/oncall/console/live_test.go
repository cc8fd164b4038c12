package console

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"errand/internal/oncall/access"
)

// listener is a browser's stream of a page.
type listener struct {
	in   *bufio.Reader
	stop context.CancelFunc
}

// listen opens a stream; have is the version that the browser has.
func (in *installation) listen(page, have string) *listener {
	in.t.Helper()
	ctx, stop := context.WithCancel(in.t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, in.base+"/live?of="+url.QueryEscape(page), nil)
	if err != nil {
		in.t.Fatal(err)
	}
	r.Header.Set("Last-Event-ID", have)
	answer, err := (&http.Client{}).Do(r) //nolint:bodyclose // with its context
	if err != nil {
		in.t.Fatal(err)
	}
	if answer.StatusCode != http.StatusOK {
		in.t.Fatalf("%s: %s", page, answer.Status)
	}
	return &listener{bufio.NewReader(answer.Body), stop}
}

// next is the next version of the page; "" when the stream ended.
func (l *listener) next() (id, text string) {
	for {
		line, err := l.in.ReadString('\n')
		switch {
		case err != nil:
			return "", ""
		case strings.HasPrefix(line, "id: "):
			id = strings.TrimSpace(line[4:])
		case strings.HasPrefix(line, "data: "):
			text += line[6:]
		case line == "\n" && id != "":
			return id, text
		}
	}
}

func TestAStreamResumesAtAConsoleThatWasStartedAgain(t *testing.T) {
	t.Parallel()
	in := installed(t)
	in.failed("order-1")
	page := in.shows("/requests", "order-1")
	_, after, _ := strings.Cut(page, `data-version="`)
	have, _, _ := strings.Cut(after, `"`)
	in.open(t.TempDir()) // another one, with an index of its own
	in.shows("/requests", "order-1")
	stream := in.listen("/requests", have)
	defer stream.stop()
	in.until("the stream is served", func() bool {
		in.live.mu.Lock()
		defer in.live.mu.Unlock()
		for _, topic := range in.live.topics {
			if version, _ := topic.newest(); version != "" {
				return true
			}
		}
		return false
	})
	in.failed("order-2")
	for {
		id, text := stream.next()
		if id == have || id == "" {
			t.Fatalf("the version that the browser has comes again, or none: %q", id)
		}
		if strings.Contains(text, "order-2") {
			return
		}
	}
}

func TestStreamsAreBounded(t *testing.T) {
	t.Parallel()
	in := installed(t)
	in.live.mu.Lock()
	in.live.readers = maxReaders
	in.live.mu.Unlock()
	if status, _ := in.get("/live?of=/"); status != http.StatusServiceUnavailable {
		t.Errorf("one more: %d, want 503", status)
	}
	in.live.mu.Lock()
	in.live.readers = 0
	in.live.mu.Unlock()
	for _, of := range []string{"/nothing", "/redrive", "//example.com/", "x", ""} {
		if status, _ := in.get("/live?of=" + url.QueryEscape(of)); status != http.StatusNotFound && status != http.StatusBadRequest {
			t.Errorf("a stream of %q: %d, want 404 or 400", of, status)
		}
	}
}

// What reads a whole queue takes seconds where much waits: it is not made again each second.
func TestAPageThatTakesLongRests(t *testing.T) {
	t.Parallel()
	in := installed(t)
	made := 0
	v := view{build: func(*http.Request, access.User) (page, error) { made++; return page{}, notFound("") },
		stamp: func(*http.Request) string { return fmt.Sprint(made, time.Now()) }}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
	for _, c := range []struct {
		age, took time.Duration
		want      int
	}{{2 * time.Second, 0, 1}, {2 * time.Second, time.Second, 0}, {11 * time.Second, time.Second, 1}, {16 * time.Second, time.Hour, 1}} {
		made = 0
		in.live.make(t.Context(), &topic{view: v, request: r, user: anybody, made: time.Now().Add(-c.age), took: c.took})
		if made != c.want {
			t.Errorf("%v after it was made in %v it is made %d times more, want %d", c.age, c.took, made, c.want)
		}
	}
}

func TestFiftyBrowsersSeeWhatHappensAndTheConsoleStaysSmall(t *testing.T) {
	t.Parallel()
	in := installed(t)
	var seen atomic.Int64
	var wg sync.WaitGroup
	for range 50 {
		stream := in.listen("/requests", "")
		wg.Go(func() {
			defer stream.stop()
			for {
				id, text := stream.next()
				if id == "" {
					return
				}
				if strings.Contains(text, "order-29") {
					seen.Add(1)
					return
				}
			}
		})
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for n := range 30 {
		in.store(fmt.Sprint("mandate.enroll.succeeded.order-", n), body{"request_id": fmt.Sprint("order-", n)})
	}
	wg.Wait()
	runtime.ReadMemStats(&after)
	if n := seen.Load(); n != 50 {
		t.Errorf("%d browsers saw the last request, want 50", n)
	}
	if grown := int64(after.HeapInuse) - int64(before.HeapInuse); grown > 64<<20 {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
	in.until("the page is forgotten", func() bool {
		in.live.mu.Lock()
		defer in.live.mu.Unlock()
		return len(in.live.topics) == 0 && in.live.readers == 0
	})
}
