package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/sandbox"
	"errand/pkg/messages"
)

// What comes beside faults and kills: requests that nobody takes or can read, a service
// that hangs, and servers without room. 0 leaves one of them out.
var (
	stormPoison = flag.Float64("storm.poison", 0.1,
		"share of the requests that are refused with 403, cannot be read, or hold a quote that is not closed")
	stormHang = flag.Duration("storm.hang", 6*time.Second, "time between two times that an operation hangs, on average")
	stormFull = flag.Duration("storm.full", 5*time.Second, "time between two times that there is no room for events, on average")
)

// hangs is how long an operation hangs: two calls, of which a minute has as many.
const hangs = 4 * time.Second

// trouble is that part of a storm, and what the judge must know of it.
type trouble struct {
	refused    map[string]bool     // requests that the service never takes
	unclosed   map[string]bool     // messages with a quote that is not closed
	unreadable map[string][]string // bodies by subject

	brokerUse        sync.Mutex // the server is being killed, started or asked to read its configuration
	hanging          atomic.Pointer[string]
	hung, full, made atomic.Int64 // times, and requests to bring them about
}

// unsent is a sender that the service does not know, and unordered an order number that it takes from nobody.
const unsent, unordered = "unverified@example.test", "refused"

// refuseSome has the sandbox refuse them before any other fault comes.
func (s *storm) refuseSome() {
	s.refused, s.unclosed, s.unreadable = map[string]bool{}, map[string]bool{}, map[string][]string{}
	s.fault(sandbox.Fault{Operation: "enroll", Kind: sandbox.Status, Status: http.StatusForbidden, Match: `"order-` + unordered})
	s.fault(sandbox.Fault{Operation: "send", Kind: sandbox.Status, Status: http.StatusForbidden, Match: unsent})
}

// poison publishes a request of those that must not harm the others.
func (s *storm) poison(n int, draw *rand.Rand) {
	switch draw.IntN(5) {
	case 0:
		s.enroll(fmt.Sprint("theirs", n), true, "portal_key", "theirs")
	case 1:
		s.enroll(fmt.Sprint(unordered, n), true)
	case 2:
		s.mail(fmt.Sprint("m", n), true, "from", unsent)
	case 3:
		subject := []string{"mandate.enroll.requested", "mail.send.requested"}[draw.IntN(2)]
		body := fmt.Sprintf("\xff{%d", n)
		s.insist(subject, []byte(body), jetstream.WithMsgID(fmt.Sprint("unreadable", n))) // stored once, also when it is published again
		s.unreadable[subject] = append(s.unreadable[subject], body)
	case 4:
		id := fmt.Sprint("m", n)
		body := message(id, letterSize, "on_unknown", "report")
		to := slices.Insert(body["to"].([]string), 1+draw.IntN(letterSize-1), `"Not closed <nobody@example.test>`)
		body["to"] = strings.Join(to, ", ")
		s.insist("mail.send.requested", body)
		s.letters, s.unclosed[id] = append(s.letters, id), true
	}
}

// enroll publishes an enrollment, which the service may never take.
func (s *storm) enroll(id string, refused bool, more ...string) {
	s.insist("mandate.enroll.requested", enrollment(id, append(more, "on_unknown", "report")...))
	s.enrollments = append(s.enrollments, id)
	if refused {
		s.refused[id] = true
	}
}

// mail publishes a message, which the service may never take.
func (s *storm) mail(id string, refused bool, more ...string) {
	s.insist("mail.send.requested", message(id, letterSize, append(more, "on_unknown", "report")...))
	s.letters = append(s.letters, id)
	if refused {
		s.refused[id] = true
	}
}

// keepSucceeding publishes good requests for as long as others are refused: it is by
// these that the programs see that the fault is the others' own.
func (s *storm) keepSucceeding() {
	open := len(s.refused)
	for _, filter := range []string{"mandate.enroll.*.*", "mail.send.*.*"} {
		for subject := range s.subjects(filter) {
			if e := (event{Subject: subject}); e.final() && s.refused[e.id()] {
				open--
			}
		}
	}
	if open > 0 {
		id := s.made.Add(1)
		s.enroll(fmt.Sprint("after", id), false)
		s.mail(fmt.Sprint("mafter", id), false)
	}
}

// hang lets every call of one operation time out for a while, again and again. Half of them are done nevertheless.
func (s *storm) hang(ctx context.Context, draw *rand.Rand) {
	for wait(ctx, around(*stormHang, draw)) {
		paths := []string{"/v3/mandates", "/v3/mandates/transactions", "/api/v0/messages", "/api/v0/logs"}
		s.hanging.Store(&paths[draw.IntN(len(paths))])
		s.hung.Add(1)
		wait(ctx, hangs)
		s.hanging.Store(nil)
	}
}

// hangable is in front of the sandbox.
func (s *storm) hangable(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := s.hanging.Load()
		if path == nil || *path != r.URL.Path {
			next.ServeHTTP(w, r)
			return
		}
		work := s.made.Add(1)%2 == 0
		func() {
			defer func() {
				why := recover() // a fault that cuts the connection, which does not exist here
				if err, _ := why.(error); why != nil && !errors.Is(err, http.ErrAbortHandler) {
					panic(why)
				}
			}()
			if work {
				next.ServeHTTP(httptest.NewRecorder(), r)
			}
		}()
		_, _ = io.Copy(io.Discard, r.Body) // only after that it is noticed that the caller left
		<-r.Context().Done()
	})
}

// leaveNoRoom takes the room of a stream, or of the account, again and again, and returns it after some seconds.
func (s *storm) leaveNoRoom(ctx context.Context, draw *rand.Rand) {
	streams := []string{bus.MandateEvents, bus.MailEvents, bus.DeadLetters}
	for wait(ctx, around(*stormFull, draw)) {
		stream, account := streams[draw.IntN(len(streams))], draw.IntN(2) == 0
		lasts := around(2*time.Second, draw)
		limit, free := func() error { return s.limitStream(stream, true) }, func() error { return s.limitStream(stream, false) }
		if account {
			limit, free = func() error { return s.limitAccount(true) }, func() error { return s.limitAccount(false) }
		}
		s.brokerUse.Lock() // a server that starts with less room than its streams have does not recover them
		if limit() == nil {
			s.full.Add(1)
		}
		wait(ctx, lasts)
		for end := time.Now().Add(time.Minute); ; wait(s.t.Context(), 100*time.Millisecond) {
			err := free()
			if err != nil && time.Now().Before(end) {
				continue
			}
			errorIf(s.t, err != nil, "there is no room again: %v", err)
			break
		}
		s.brokerUse.Unlock()
	}
}

// limitStream leaves a stream no room for more than it has, or room for everything.
func (s *storm) limitStream(name string, full bool) error {
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Second)
	defer cancel()
	stream, err := s.js.Stream(ctx, name)
	if err != nil {
		return err
	}
	config := stream.CachedInfo().Config
	config.Discard, config.MaxBytes = jetstream.DiscardOld, -1
	if full {
		config.Discard, config.MaxBytes = jetstream.DiscardNew, max(1, int64(stream.CachedInfo().State.Bytes))
	}
	_, err = s.js.UpdateStream(ctx, config)
	return err
}

// limitAccount does the same to the programs' account, by the server's configuration.
func (s *storm) limitAccount(full bool) error {
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Second)
	defer cancel()
	text, err := os.ReadFile(s.broker.file)
	if err != nil {
		return err
	}
	account, err := s.js.AccountInfo(ctx)
	if err != nil {
		return err
	}
	const free = "jetstream: enabled"
	limited, config := fmt.Sprintf("jetstream: { max_file: %d }", max(1, account.Store)), string(text)
	if full {
		config = strings.Replace(config, free, limited, 1)
	} else if at := strings.Index(config, "jetstream: { max_file: "); at >= 0 {
		rest := config[at:]
		config = config[:at] + free + rest[strings.Index(rest, "}")+1:]
	}
	if err := os.WriteFile(s.broker.file, []byte(config), 0o600); err != nil {
		return err
	}
	s.broker.signal(syscall.SIGHUP)
	for range 20 {
		if account, err = s.js.AccountInfo(ctx); err == nil && (account.Limits.MaxStore > 0) == full {
			return nil
		}
		wait(ctx, 50*time.Millisecond)
	}
	return fmt.Errorf("the server did not change the limit of the account: %w", err)
}

// byNumber reports whether an id belongs to a message that cannot be read.
func byNumber(id string) bool {
	return strings.HasPrefix(id, bus.MandateRequests+"-") || strings.HasPrefix(id, bus.MailRequests+"-")
}

// wantTroubleEnded wants requests that the service never takes to be without effect, and
// each unreadable message reported once.
func (s *storm) wantTroubleEnded(ends map[string]event) {
	s.t.Helper()
	for id, e := range ends {
		errorIf(s.t, s.refused[id] && (e.state() != messages.Failed && e.state() != messages.Uncertain || e.state() == messages.Failed &&
			e.reason() != "refused"), "%s, which is refused by 403, is %s: %s", id, e.state(), e.Raw)
		n := number(e.Body["invalid_count"])
		errorIf(s.t, e.operation() == messages.Send && s.unclosed[id] != (n == 1), "%s has %d invalid recipients: %s", id, n, e.Raw)
	}
}

// wantUnreadableReported wants one event and one dead letter of each message that cannot
// be read, under the number of that message.
func (s *storm) wantUnreadableReported(subject, stream string) {
	s.t.Helper()
	letters := map[string]string{}
	for _, d := range s.events("dead." + subject) {
		if id := d.Header.Get("Errand-Request-Id"); strings.HasPrefix(id, stream+"-") {
			letters[id] = d.Raw
		}
	}
	var bodies []string
	for id, history := range s.histories(strings.Replace(subject, "requested", "*.*", 1)) {
		if strings.HasPrefix(id, stream+"-") {
			if e, err := finalEvent(history); err != nil || e.state() != messages.Failed || e.reason() != "invalid_request" || len(history) != 1 {
				s.t.Errorf("%s: %d events, %v: %s", id, len(history), err, e.Raw)
			}
			bodies = append(bodies, letters[id])
		}
	}
	want := slices.Sorted(slices.Values(s.unreadable[subject]))
	if slices.Sort(bodies); !slices.Equal(bodies, want) || len(letters) != len(want) {
		s.t.Errorf("%s: %d events and %d dead letters of %d unreadable messages", subject, len(bodies), len(letters), len(want))
	}
}
