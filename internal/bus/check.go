package bus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// incompatible says what keeps a stream from holding what is written to it, or "".
func incompatible(have jetstream.StreamConfig) string {
	for _, want := range Streams(Limits{}) {
		if want.Name != have.Name {
			continue
		}
		for _, subject := range want.Subjects {
			if !slices.Contains(have.Subjects, subject) {
				return "does not take " + subject
			}
		}
		if want.AllowDirect && !have.AllowDirect {
			return "does not allow direct get"
		}
	}
	return ""
}

// Found is what a program needs of NATS, as Check found it.
type Found struct {
	Queues map[string]jetstream.Consumer // by name
	Kept   time.Duration                 // how long the streams of events keep what they have, the shortest; 0: for ever
}

// Check reports whether what a program needs is there and suits it. The error says what
// to run.
func Check(ctx context.Context, js jetstream.JetStream, queues []Queue, streams ...string) (Found, error) {
	var missing []string
	var ages []time.Duration
	found := Found{Queues: map[string]jetstream.Consumer{}}
	for _, q := range queues {
		c, err := js.Consumer(ctx, q.Stream, q.Name)
		switch {
		case errors.Is(err, jetstream.ErrConsumerNotFound), errors.Is(err, jetstream.ErrStreamNotFound):
			missing = append(missing, "consumer "+q.Name+" on stream "+q.Stream)
			continue
		case err != nil:
			return Found{}, fmt.Errorf("consumer %s: %w", q.Name, err)
		}
		got := c.CachedInfo().Config
		if fields := diff(got, q.Config(Limits{AckWait: got.AckWait}), []string{"FilterSubject", "AckPolicy", "MaxDeliver"}); len(fields) > 0 {
			return Found{}, fmt.Errorf("consumer %s does not suit: %s is %s, must be %s: run `errand provision`", q.Name, fields[0].Name, fields[0].Have, fields[0].Want)
		}
		found.Queues[q.Name] = c
	}
	for _, name := range streams {
		s, err := js.Stream(ctx, name)
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound):
			missing = append(missing, "stream "+name)
			continue
		case err != nil:
			return Found{}, fmt.Errorf("stream %s: %w", name, err)
		}
		config := s.CachedInfo().Config
		if problem := incompatible(config); problem != "" {
			return Found{}, fmt.Errorf("stream %s %s: run `errand provision`", name, problem)
		}
		if name != DeadLetters {
			ages = append(ages, config.MaxAge)
		}
	}
	if len(missing) > 0 {
		return Found{}, fmt.Errorf("NATS has no %s: run `errand provision --missing` first", strings.Join(missing, ", no "))
	}
	found.Kept = shortest(ages)
	return found, nil
}
