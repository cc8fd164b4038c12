package console

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"errand/internal/oncall/access"
	"errand/internal/retry"
)

// live keeps open pages current. Readers with the same page and roles share its versions. A new one is made after a change,
// at most once a second. A slow reader skips versions, so none is kept, and a reader that reconnects names the one it has.
type live struct {
	server *Server
	closed chan struct{}
	once   sync.Once

	mu      sync.Mutex
	topics  map[string]*topic
	readers int
}

// topic is an open page.
type topic struct {
	view    view
	request *http.Request // of its first reader
	user    access.User

	mu      sync.Mutex
	stamp   string // of what the version was made from
	made    time.Time
	took    time.Duration // to make it
	version string
	body    []byte
	readers map[chan struct{}]bool // each holds one signal: there is a new version
}

func newLive(s *Server) *live {
	return &live{server: s, closed: make(chan struct{}), topics: map[string]*topic{}}
}

// Bounds of what happens at once.
const (
	maxReaders = 500
	makers     = 4
	restOf     = 10 // a page rests this many times as long as it took to make
)

// run makes new versions until ctx ends.
func (l *live) run(ctx context.Context) {
	for retry.Pause(ctx, retry.LiveEvery) {
		l.mu.Lock()
		topics := make([]*topic, 0, len(l.topics))
		for _, t := range l.topics {
			topics = append(topics, t)
		}
		l.mu.Unlock()
		l.refresh(ctx, topics)
	}
}

// refresh makes new versions, several at once.
func (l *live) refresh(ctx context.Context, topics []*topic) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, makers)
	for _, t := range topics {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			l.make(ctx, t)
		})
	}
	wg.Wait()
}

// make makes a new version of a page after a change, and signals its readers.
func (l *live) make(ctx context.Context, t *topic) {
	ctx, cancel := context.WithTimeout(ctx, retry.PageMake)
	defer cancel()
	r := t.request.WithContext(ctx)
	notices := l.server.watch.notices()
	stamp := fmt.Sprint(notices)
	if t.view.stamp != nil {
		stamp += t.view.stamp(r)
	} else {
		stamp += l.server.watch.stamp()
	}
	if age := time.Since(t.made); stamp == t.stamp && age < retry.LiveAnyway || age < min(restOf*t.took, retry.LiveAnyway) {
		return
	}
	begin := time.Now()
	body, err := inner(frame{page: l.server.build(t.view, r, t.user), User: t.user, Notices: notices})
	t.made, t.took = time.Now(), time.Since(begin)
	if err != nil || ctx.Err() != nil {
		return // a reload shows the error, or the console is stopping
	}
	version := versionOf(body)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stamp = stamp
	if version == t.version {
		return
	}
	t.version, t.body = version, body
	for reader := range t.readers {
		select {
		case reader <- struct{}{}:
		default: // it has not taken the signal before
		}
	}
}

// close ends all streams; browsers reconnect by themselves.
func (l *live) close() { l.once.Do(func() { close(l.closed) }) }

// join adds a reader to a page. It returns false if there are too many.
func (l *live) join(key string, v view, r *http.Request, user access.User) (t *topic, news chan struct{}, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.readers >= maxReaders {
		return nil, nil, false
	}
	l.readers++
	t = l.topics[key]
	if t == nil {
		t = &topic{view: v, request: r, user: user, readers: map[chan struct{}]bool{}}
		l.topics[key] = t
	}
	news = make(chan struct{}, 1)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.readers[news] = true
	if t.version != "" {
		news <- struct{}{}
	}
	return t, news, true
}

func (l *live) leave(key string, t *topic, news chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.readers--
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.readers, news)
	if len(t.readers) == 0 && l.topics[key] == t {
		delete(l.topics, key)
	}
}

func (t *topic) newest() (version string, body []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.version, t.body
}

// serveLive streams the versions of a page. The id of each is a hash of it, so that a restarted console sends no version
// that the browser already has.
func (s *Server) serveLive(w http.ResponseWriter, r *http.Request, user access.User) {
	of, err := url.ParseRequestURI(r.FormValue("of"))
	if err != nil || of.Host != "" || !strings.HasPrefix(of.Path, "/") {
		http.Error(w, "of: must be the path of a page", http.StatusBadRequest)
		return
	}
	asked := r.Clone(context.WithoutCancel(r.Context()))
	asked.URL, asked.RequestURI, asked.Form, asked.Pattern = of, of.RequestURI(), nil, ""
	v, asked := s.find(asked)
	if v.build == nil || v.still {
		http.Error(w, "of: there is no such live page", http.StatusNotFound)
		return
	}
	roles := slices.Sorted(slices.Values(user.Roles))
	key := fmt.Sprint(roles, " ", of.RequestURI())
	t, news, ok := s.live.join(key, v, asked, user)
	if !ok {
		w.Header().Set("Retry-After", strconv.Itoa(int(retry.LiveLater.Seconds())))
		http.Error(w, "too many pages are open", http.StatusServiceUnavailable)
		return
	}
	defer s.live.leave(key, t, news)
	have := r.Header.Get("Last-Event-ID")
	if have == "" {
		have = r.FormValue("have")
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("X-Accel-Buffering", "no") // a proxy would buffer it
	stream(r.Context(), w, t, news, have, s.live.closed)
}

// stream writes until the reader is gone or too slow, its login ends, or the console stops.
func stream(ctx context.Context, w http.ResponseWriter, t *topic, news <-chan struct{}, have string, closed <-chan struct{}) {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{}) // it would end the stream; only servers of tests have none
	write := func(text []byte) bool {
		_ = control.SetWriteDeadline(time.Now().Add(retry.PageWrite)) // only servers of tests have none
		_, err := w.Write(text)
		return err == nil && control.Flush() == nil
	}
	beat := time.NewTicker(retry.LiveBeat)
	defer beat.Stop()
	if !write(fmt.Appendf(nil, "retry: %d\n: live\n\n", retry.LiveAgain.Milliseconds())) {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-closed:
			return
		case <-beat.C:
			if !write([]byte(": alive\n\n")) {
				return
			}
		case <-news:
			version, body := t.newest()
			if version != have && !write(event(version, body)) {
				return
			}
			have = version
		}
	}
}

// event is a server-sent event.
func event(id string, body []byte) []byte {
	var out bytes.Buffer
	out.WriteString("id: " + id + "\n")
	for line := range bytes.SplitSeq(bytes.TrimRight(body, "\n"), []byte("\n")) {
		out.WriteString("data: ")
		out.Write(bytes.ReplaceAll(line, []byte("\r"), nil))
		out.WriteByte('\n')
	}
	out.WriteByte('\n')
	return out.Bytes()
}
