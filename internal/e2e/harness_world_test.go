package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/retry"
	"errand/internal/sandbox"
)

// world is what a bubble and an installation have in common: streams, the sandbox, and how a test looks at both.
type world struct {
	t        *testing.T
	js       jetstream.JetStream // may do anything, as no program may
	producer jetstream.JetStream // publishes requests
	box      *sandbox.Sandbox
	// lastOutput is what the programs logged last, shown when a test fails.
	lastOutput func() string
}

// set changes the settings of the sandbox.
func (w *world) set(change func(*sandbox.Settings)) {
	w.t.Helper()
	must(w.t, w.box.Set(change))
}

// latency is how long the sandbox takes for each call from now on.
func (w *world) latency(d time.Duration) {
	w.t.Helper()
	w.set(func(s *sandbox.Settings) { s.Latency = sandbox.Duration(d) })
}

// fault adds a rule to the sandbox.
func (w *world) fault(f sandbox.Fault) {
	w.t.Helper()
	err := w.box.AddFault(f)
	must(w.t, err)
}

// decide has the payer of an order number decide.
func (w *world) decide(order, decision string) {
	w.t.Helper()
	must(w.t, w.box.Decide(order, decision))
}

// oracle is what the sandbox really did.
func (w *world) oracle() sandbox.Oracle { return w.box.Oracle(sandbox.Query{}) }

// totals is the oracle without its lists.
func (w *world) totals() sandbox.Oracle { return w.box.Oracle(sandbox.Query{Summary: true}) }

// list has another program's enrollment in the transaction list: an empty list proves nothing.
func (w *world) list() {
	w.direct("/v3/mandates", enrollment("somebody-else", "portal_key", portalKey))
}

// calls counts the calls of an operation that arrived at the sandbox.
func (w *world) calls(operation string) int64 { return w.totals().Calls[operation] }

// publish publishes a request once, bytes as they are. It waits for the acknowledgement for as long as a busy machine takes.
func (w *world) publish(subject string, body any) {
	w.t.Helper()
	w.publishMsg(&nats.Msg{Subject: subject, Data: encode(w.t, body)})
}

// publishMsg publishes a message with its headers.
func (w *world) publishMsg(m *nats.Msg) {
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	_, err := w.producer.PublishMsg(ctx, m, jetstream.WithRetryAttempts(50))
	must(w.t, err)
}

// encode is a body as JSON; bytes are taken as they are.
func encode(t *testing.T, body any) []byte {
	t.Helper()
	if data, ok := body.([]byte); ok {
		return data
	}
	data, err := json.Marshal(body)
	must(t, err)
	return data
}

// insist repeats a question that a cluster does not answer while it elects a leader.
func insist[T any](t *testing.T, ask func() (T, error)) T {
	t.Helper()
	answer, err := ask()
	for end := time.Now().Add(time.Minute); err != nil; answer, err = ask() {
		if !bus.IsUnavailable(err) || time.Now().After(end) {
			t.Fatal(err)
		}
		wait(t.Context(), 100*time.Millisecond)
	}
	return answer
}

// stream is a stream as it is now.
func (w *world) stream(name string) jetstream.Stream {
	w.t.Helper()
	return insist(w.t, func() (jetstream.Stream, error) { return w.js.Stream(w.t.Context(), name) })
}

// stored counts the messages of a stream.
func (w *world) stored(stream string) int { return int(w.stream(stream).CachedInfo().State.Msgs) }

// configure changes the configuration of a stream.
func (w *world) configure(stream string, change func(*jetstream.StreamConfig)) {
	w.t.Helper()
	config := w.stream(stream).CachedInfo().Config
	change(&config)
	_, err := w.js.UpdateStream(w.t.Context(), config)
	must(w.t, err)
}

// purge removes what a stream holds under a subject.
func (w *world) purge(stream, subject string) {
	w.t.Helper()
	must(w.t, w.stream(stream).Purge(w.t.Context(), jetstream.WithPurgeSubject(subject)))
}

// queued counts the requests that are not acknowledged yet.
func (w *world) queued() int { return w.stored(bus.MandateRequests) + w.stored(bus.MailRequests) }

// shrinkDuplicateWindow all but ends the duplicate window, which would hide what is published twice about the log.
func (w *world) shrinkDuplicateWindow() {
	w.t.Helper()
	w.configure(bus.MailDeliveries, func(c *jetstream.StreamConfig) { c.Duplicates = 100 * time.Millisecond }) // the shortest there is
}

// queue is what the server says of a queue's consumer.
func (w *world) queue(q bus.Queue) *jetstream.ConsumerInfo {
	w.t.Helper()
	return insist(w.t, func() (jetstream.Consumer, error) { return w.js.Consumer(w.t.Context(), q.Stream, q.Name) }).CachedInfo()
}

// unsettled counts the requests that wait in a queue or are in flight.
func (w *world) unsettled(q bus.Queue) int {
	w.t.Helper()
	c := w.queue(q)
	return int(c.NumPending) + c.NumAckPending
}

// streamOf is the stream of a filter's events.
func streamOf(filter string) string {
	switch {
	case strings.HasPrefix(filter, "mail.delivery"), strings.HasPrefix(filter, "mail.log"):
		return bus.MailDeliveries
	case strings.HasPrefix(filter, "dead"):
		return bus.DeadLetters
	case strings.HasPrefix(filter, "mandate.callback"):
		return bus.MandateCallbacks
	case strings.HasPrefix(filter, "mandate"):
		return bus.MandateEvents
	}
	return bus.MailEvents
}

// subjects counts the events under a filter by subject, without reading them.
func (w *world) subjects(filter string) map[string]uint64 {
	w.t.Helper()
	s := w.stream(streamOf(filter))
	return insist(w.t, func() (*jetstream.StreamInfo, error) {
		return s.Info(w.t.Context(), jetstream.WithSubjectFilter(filter))
	}).State.Subjects
}

// count counts the events under a filter.
func (w *world) count(filter string) (n int) {
	w.t.Helper()
	for _, k := range w.subjects(filter) {
		n += int(k)
	}
	return n
}

// published reports whether there are n events or more under a filter.
func (w *world) published(filter string, n int) func() bool {
	return func() bool { return w.count(filter) >= n }
}

// haveOutcomes reports whether n requests have an outcome under a filter.
func (w *world) haveOutcomes(filter string, n int) func() bool {
	return func() bool {
		ends := 0
		for subject := range w.subjects(filter) {
			if (event{Subject: subject}).final() {
				ends++
			}
		}
		return ends >= n
	}
}

// ended reports whether a request has an outcome.
func (w *world) ended(operation, id string) func() bool { return w.haveOutcomes(operation+".*."+id, 1) }

// events lists the events under a filter, oldest first.
func (w *world) events(filter string) (out []event) {
	w.t.Helper()
	c := insist(w.t, func() (jetstream.Consumer, error) {
		return w.js.OrderedConsumer(w.t.Context(), streamOf(filter), jetstream.OrderedConsumerConfig{FilterSubjects: []string{filter}})
	})
	info := insist(w.t, func() (*jetstream.ConsumerInfo, error) { return c.Info(w.t.Context()) })
	end := time.Now().Add(time.Minute)
	for left := info.NumPending; left > 0; {
		batch, err := c.Fetch(int(min(left, 500)), jetstream.FetchMaxWait(5*time.Second))
		if err == nil {
			for m := range batch.Messages() {
				e := event{Subject: m.Subject(), Header: m.Headers(), Raw: string(m.Data())}
				if meta, err := m.Metadata(); err == nil {
					e.Sequence = meta.Sequence.Stream
				}
				_ = json.Unmarshal(m.Data(), &e.Body) // dead letters need not be JSON
				out = append(out, e)
				left--
				end = time.Now().Add(time.Minute)
			}
			err = batch.Error()
		}
		// In a cluster the consumer's server may not know yet who asks.
		fatalIf(w.t, left > 0 && (err != nil && !bus.IsUnavailable(err) || time.Now().After(end)),
			"%s: %d events do not come: %v", filter, left, err)
		if err != nil {
			<-time.After(100 * time.Millisecond)
		}
	}
	return out
}

// histories are the events under a filter by what they are about, in the order in which they were stored.
func (w *world) histories(filter string) map[string][]event {
	w.t.Helper()
	out := map[string][]event{}
	for _, e := range w.events(filter) {
		out[e.id()] = append(out[e.id()], e)
	}
	return out
}

// outcomes are the final events under a filter by request; a request with two of them, or with an event after it, fails the test.
func (w *world) outcomes(filter string) map[string]event {
	w.t.Helper()
	out := map[string]event{}
	for id, history := range w.histories(filter) {
		if e, err := finalEvent(history); err == nil {
			out[id] = e
		} else if slices.ContainsFunc(history, event.final) {
			w.t.Errorf("%s: %v", id, err)
		}
	}
	return out
}

// wantOne fails unless exactly one event is under filter, and returns it.
func (w *world) wantOne(filter string) event {
	w.t.Helper()
	got := w.events(filter)
	if len(got) != 1 {
		w.t.Fatalf("%s: got %d events, want 1: %v\n%s", filter, len(got), got, w.lastOutput())
	}
	return got[0]
}

// wantNone fails when an event is under filter.
func (w *world) wantNone(filter string) {
	w.t.Helper()
	for _, e := range w.events(filter) {
		w.t.Fatalf("want no event under %s: %s %s", filter, e.Subject, e.Raw)
	}
}

// wantFinal fails unless the history under filter has exactly one final event, the last.
func (w *world) wantFinal(filter string) event {
	w.t.Helper()
	e, err := finalEvent(w.events(filter))
	if err != nil {
		w.t.Fatalf("%s: %v\n%s", filter, err, w.lastOutput())
	}
	return e
}

// insertRow puts a row into the sending log.
func (w *world) insertRow(row map[string]any) {
	w.t.Helper()
	must(w.t, w.box.InsertLog(encode(w.t, row)))
}

// finalOf are the final events of a request, whatever they say.
func (w *world) finalOf(operation, id string) (final []event) {
	w.t.Helper()
	return slices.DeleteFunc(w.events(operation+".*."+id), func(e event) bool { return !e.final() })
}

// wantEnd wants one final event of a request, in that state.
func (w *world) wantEnd(operation, state, id string) event {
	w.t.Helper()
	final := w.finalOf(operation, id)
	if len(final) != 1 || string(final[0].state()) != state {
		w.t.Fatalf("%s has %d final events, want %s once: %v\n%s", id, len(final), state, final, w.lastOutput())
	}
	return final[0]
}

// waitOutcomes waits until n requests have an outcome under a filter, whichever it is.
func (in *installation) waitOutcomes(filter string, n int, within time.Duration) {
	in.t.Helper()
	in.until(fmt.Sprintf("%d outcomes under %s", n, filter), within, in.haveOutcomes(filter, n))
}

// busy is how long a machine with other work may take for what takes an idle one seconds.
const busy = 3 * time.Minute

// untilReady waits until a program says that it is ready.
func (in *installation) untilReady(p *process) {
	in.t.Helper()
	defer func() {
		if in.t.Failed() {
			_, page := p.get("/readyz")
			in.t.Logf("%s says: %s", p.name, page)
		}
	}()
	in.until(p.name+" to be ready", busy+retry.Refused, p.says(http.StatusOK)) // a fault lasts so long when nobody tries again
}

// wantOnce wants n requests, each delivered once, called once and ended once.
func (in *installation) wantOnce(queue bus.Queue, well, call string, n int) {
	in.t.Helper()
	if q := in.queue(queue); q.Delivered.Consumer != uint64(n) || q.Delivered.Stream != uint64(n) || q.NumRedelivered != 0 {
		in.t.Errorf("%s: %d deliveries of %d requests, %d waiting as redelivered", queue.Name, q.Delivered.Consumer, q.Delivered.Stream,
			q.NumRedelivered)
	}
	ended, calls := in.count(well), in.calls(call)
	errorIf(in.t, ended != n || calls != int64(n), "%d requests: %d ended well, with %d calls", n, ended, calls)
}

// untilSettled waits until nothing waits in a queue or is in flight.
func (in *installation) untilSettled(q bus.Queue) {
	in.t.Helper()
	in.until("an empty "+q.Name, time.Minute, func() bool { return in.unsettled(q) == 0 })
}

// direct posts to the sandbox past the programs, as another program with the same account does, and returns the answer. A fault that
// cuts the connection leaves no answer.
func (w *world) direct(path string, body map[string]any) []byte {
	w.t.Helper()
	delete(body, "request_id")
	r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1:8085"+path, bytes.NewReader(encode(w.t, body)))
	r.Header.Set("Authorization", "Bearer "+mandateToken)
	r.Header.Set("X-API-Key", mailKey)
	r.Header.Set("Content-Type", "application/json")
	answer := httptest.NewRecorder()
	defer func() {
		why := recover()
		if err, _ := why.(error); why != nil && !errors.Is(err, http.ErrAbortHandler) {
			panic(why)
		}
	}()
	if w.box.ServeHTTP(answer, r); answer.Code != http.StatusOK {
		w.t.Fatalf("%s: %d %s", path, answer.Code, answer.Body)
	}
	return answer.Body.Bytes()
}

// request publishes n requests of an operation, whose ids are the prefix and a number from 0.
func (w *world) request(o *operation, prefix string, n int, more ...string) {
	w.t.Helper()
	for i := range n {
		w.publish(o.Requested(), o.request(fmt.Sprint(prefix, i), more...))
	}
}
