package errand_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"errand/pkg/errand"
	"errand/pkg/messages"
)

// The server may deliver what it was asked for before a reconnect besides what it is asked for after it.
func TestNoOutcomeIsLateAfterAReconnect(t *testing.T) {
	w := newWorld(t)
	o, err := w.client.Outcomes(t.Context(), "billing", messages.Send, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	other, err := w.n.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	const all = 20
	began := time.Now()
	go func() {
		for range 5 {
			<-time.After(50 * time.Millisecond)
			if err := w.js.Conn().ForceReconnect(); err != nil {
				t.Error(err)
			}
		}
		<-time.After(300 * time.Millisecond)
		for i := range all {
			if err := other.Publish(fmt.Sprintf("mail.send.accepted.n%d", i), []byte(`{}`)); err != nil {
				t.Error(err)
			}
		}
	}()
	got := run(t, o, all, func(errand.Event) error {
		<-time.After(10 * time.Millisecond)
		return nil
	})
	if took := time.Since(began); len(got) != all || took > 15*time.Second {
		t.Errorf("%d outcomes took %v: %v", len(got), took, got)
	}
}

// What was on its way when ctx ended goes to the next process at once.
func TestARunThatEndsKeepsNoOutcome(t *testing.T) {
	w := newWorld(t)
	o, err := w.client.Outcomes(t.Context(), "billing", messages.Send, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	const all = 300
	for i := range all {
		w.store(fmt.Sprintf("mail.send.accepted.n%d", i), `{}`)
	}
	began, seen := time.Now(), map[string]bool{}
	for i := 0; len(seen) < all && time.Since(began) < 20*time.Second; i++ {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%20)*50*time.Microsecond)
		err := o.Run(ctx, func(_ context.Context, o errand.Outcome) error {
			seen[o.About().RequestID] = true
			return nil
		})
		cancel()
		if err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(began); len(seen) < all {
		t.Errorf("%d of %d outcomes were handled within %v", len(seen), all, took)
	}
}
