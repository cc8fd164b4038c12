package transactions

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"errand/internal/history"
	"errand/internal/lists/sweep"
	"errand/internal/mandates"
	"errand/internal/retry"
	"errand/pkg/clients"
	"errand/pkg/clients/mandate"
	"errand/pkg/messages"
)

// called are the callbacks of requests, by sequence from 1.
type called struct {
	mu  sync.Mutex
	all []history.Entry
}

func (c *called) call(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	subject := messages.Callback.Subject(messages.Received, id)
	c.all = append(c.all, history.Entry{Subject: subject, Sequence: uint64(len(c.all) + 1), At: time.Now()})
}

func (c *called) Open(_ context.Context, op messages.Operation, _ messages.State, from uint64, since time.Time) (history.Entry, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range c.all {
		if op == messages.Callback && (from > 0 && o.Sequence >= from || from == 0 && !o.At.Before(since)) {
			return o, nil
		}
	}
	return history.Entry{}, nil
}

func (c *called) Last(_ context.Context, op messages.Operation, filter string) (history.Entry, error) {
	if op != messages.Enroll {
		return history.Entry{}, nil
	}
	return history.Entry{Sequence: 1, Body: fmt.Appendf(nil, `{"order_number":"of %s"}`, messages.ParseSubject(filter).ID)}, nil
}

type transport func() (status int)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: f(), Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(`{"data":[]}`)), Request: r}, nil
}

// lookUps looks up what callbacks name, of a service that answers with a status.
func lookUps(t *testing.T, c *called, answer transport) *LookUps {
	t.Helper()
	api, err := mandate.New(mandate.Config{URL: "http://127.0.0.1:1", Token: clients.NewSecret("token")}, clients.Transport(answer))
	if err != nil {
		t.Fatal(err)
	}
	return &LookUps{List: New(Config{Times: &mandates.Times{Zone: time.UTC}, Last: c.Last}), Upstream: api,
		Policy: retry.Policy{First: time.Second, Max: 30 * time.Second, Tries: 2}, Open: c.Open, Logger: zerolog.Nop(),
		ReadLately: func(time.Time) bool { return false }, LookedUp: func(messages.TransactionBy, time.Duration) {},
		Leads:   func(ctx context.Context) error { return ctx.Err() },
		Publish: func(context.Context, []sweep.Row[Record]) error { return nil }}
}

// A callback that comes while the service is away causes its look when that is back.
func TestACallbackIsNotForgottenWhileTheServiceIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c called
		began, looked := time.Now(), 0
		l := lookUps(t, &c, func() int {
			if time.Since(began) < 10*time.Minute {
				return http.StatusServiceUnavailable
			}
			looked++
			return http.StatusOK
		})
		c.call("a")
		ctx, stop := context.WithTimeout(t.Context(), 12*time.Minute)
		defer stop()
		l.Run(ctx)
		if looked != 1 {
			t.Errorf("it was looked up %d times when the service was back", looked)
		}
	})
}

// Callbacks of a request cause a look every ten seconds at most, and remember little.
func TestManyCallbacksCauseFewLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c called
		var looks []time.Time
		l := lookUps(t, &c, func() int {
			looks = append(looks, time.Now())
			return http.StatusOK
		})
		go func() {
			for range 600 {
				c.call("a")
				time.Sleep(100 * time.Millisecond)
			}
		}()
		ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
		defer stop()
		l.Run(ctx)
		for i := range looks[1:] {
			if d := looks[i+1].Sub(looks[i]); d < retry.CallbackEvery {
				t.Errorf("two looks within %v", d)
			}
		}
		if len(looks) < 3 || len(looks) > 13 {
			t.Errorf("%d looks in a minute of callbacks and the minute after", len(looks))
		}
	})
}

// A poller looks up only while it leads, and looks again at what it could not publish.
func TestWhatIsNotPublishedIsLookedUpAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c called
		began, looked, published := time.Now(), 0, 0
		l := lookUps(t, &c, func() int { looked++; return http.StatusOK })
		l.Leads = func(ctx context.Context) error {
			time.Sleep(time.Until(began.Add(5 * time.Minute)))
			if looked > 0 && published == 0 {
				time.Sleep(time.Minute)
			}
			return ctx.Err()
		}
		l.Publish = func(context.Context, []sweep.Row[Record]) error {
			if time.Since(began) < 10*time.Minute {
				return errors.New("it does not lead")
			}
			published++
			return nil
		}
		c.call("a")
		ctx, stop := context.WithTimeout(t.Context(), 4*time.Minute)
		l.Run(ctx)
		if stop(); looked > 0 {
			t.Errorf("while it did not lead it looked %d times", looked)
		}
		ctx, stop = context.WithTimeout(t.Context(), 10*time.Minute)
		defer stop()
		l.Run(ctx)
		if published == 0 || looked > 12 {
			t.Errorf("published %d times after %d looks", published, looked)
		}
	})
}
