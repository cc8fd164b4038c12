package deliveries

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"errand/internal/wire/mailkey"
	"errand/pkg/clients/mail"
	"errand/pkg/messages"
)

var oldSecret, newSecret = mailkey.NewSecret(strings.Repeat("old", 11)), mailkey.NewSecret(strings.Repeat("new", 11))

// Rows are matched whichever secret the keys were made with, and a new poller learns the same from what was published.
func TestRowsFindTheirCallsWhileSecretsAreReplaced(t *testing.T) {
	inScenario(t, func(s *scenario) {
		for i, secret := range []*mailkey.Secret{oldSecret, newSecret} {
			s.secret, s.config.Secrets = secret, [][]*mailkey.Secret{{oldSecret}, {newSecret, oldSecret}}[i]
			id := []string{"old", "new"}[i]
			s.started(id, 1, 1)
			s.callsFrom("Shop@example.test", id, 1, 0, "Ann@example.test")
			s.ends(id, messages.Accepted, 1, 1, 1)
			s.row("ann@example.test", time.Second, messages.Delivered).from = "shop@example.test"
			s.run(time.Minute)
			if n := len(s.eventsOf(messages.Delivery, messages.Delivered, id)); n != 1 {
				t.Errorf("%s: %d rows are its own, want 1", id, n)
			}
			time.Sleep(2 * time.Hour) // apart from the next call
		}
		for _, e := range s.events {
			if b, ok := e.Body.(*messages.DeliveryBody); ok && b.Match.Confidence != messages.MatchExact {
				t.Errorf("%s: %+v", e.Subject(), b.Match)
			}
		}
	})
}

// A poller that cannot read the records of calls publishes nothing, whatever comes after
// them, and says whose secret it lacks. With the secret it publishes all; of calls whose secret is lost, without a match.
func TestAPollerWithoutTheSecretPublishesNothing(t *testing.T) {
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprintf("lost %t", lost), func(t *testing.T) {
			inScenario(t, func(s *scenario) {
				s.config.Secrets = []*mailkey.Secret{newSecret}
				s.restart()
				s.learn()
				s.secret = oldSecret
				s.sends("r", "x@example.test")
				s.row("x@example.test", time.Second, messages.Delivered)
				s.secret = newSecret
				s.sends("later", "y@example.test")
				for range 2 {
					rows := rowsOf(nil, time.Now())
					for _, r := range s.rows {
						rows = append(rows, rowsOf([]mail.Entry{r.entry()}, time.Now())...)
					}
					_, err := s.log.Publish(t.Context(), rows)()
					if err == nil || !strings.Contains(err.Error(), "request r has keys of the secret "+oldSecret.ID()) {
						t.Errorf("publishing rows ends with %v", err)
					}
					if err := s.log.Swept(t.Context(), time.Now()); !strings.Contains(err.Error(), "RECIPIENT_KEY") {
						t.Errorf("a sweep ends with %v", err)
					}
				}
				if len(s.events) > 0 {
					t.Errorf("%d events are published", len(s.events))
				}
				id := "r"
				if s.config.Secrets = append(s.config.Secrets, oldSecret); lost {
					s.config.Secrets, s.config.LostSecrets, id = s.config.Secrets[:1], []string{oldSecret.ID()}, messages.Unmatched
				}
				s.run(time.Minute)
				if n := len(s.eventsOf(messages.Delivery, messages.Delivered, id)); n != 1 {
					t.Errorf("then %d rows are published of %s, want 1", n, id)
				}
			})
		})
	}
}
