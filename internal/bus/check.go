package bus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"errand/pkg/messages"
)

// installed is what the servers have, by name.
type installed struct {
	streams map[string]*jetstream.StreamInfo
	queues  map[string]jetstream.Consumer
}

func (i installed) config(q Queue) (config jetstream.ConsumerConfig, there bool) {
	c, there := i.queues[q.Name]
	if there {
		config = c.CachedInfo().Config
	}
	return config, there
}

func inspect(ctx context.Context, js jetstream.JetStream, queues []Queue, streams ...string) (installed, error) {
	have := installed{map[string]*jetstream.StreamInfo{}, map[string]jetstream.Consumer{}}
	for _, q := range queues {
		c, err := js.Consumer(ctx, q.Stream, q.Name)
		switch {
		case err == nil:
			have.queues[q.Name] = c
		case !errors.Is(err, jetstream.ErrConsumerNotFound) && !errors.Is(err, jetstream.ErrStreamNotFound):
			return have, fmt.Errorf("consumer %s: %w", q.Name, err)
		}
	}
	for _, name := range streams {
		s, err := js.Stream(ctx, name)
		switch {
		case err == nil:
			have.streams[name] = s.CachedInfo()
		case !errors.Is(err, jetstream.ErrStreamNotFound):
			return have, fmt.Errorf("stream %s: %w", name, err)
		}
	}
	return have, nil
}

// incompatible says what keeps a stream from holding what is written to it; "" means nothing.
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
		read := want.Retention == jetstream.LimitsPolicy && want.Name != DeadLetters // the others are read by people alone
		if read && want.AllowDirect && !have.AllowDirect {
			return "does not allow direct get"
		}
	}
	return ""
}

// Found is what a program needs of NATS, as Check found it.
type Found struct {
	Queues  map[string]jetstream.Consumer    // by name
	Streams map[string]*jetstream.StreamInfo // by name
	Kept    time.Duration                    // how long events are kept in the stream that keeps them shortest; 0 means for ever
	Newer   bool                             // a queue was provisioned for newer requests than this program knows: a rolling upgrade
}

// Check reports whether what a program needs is there and compatible. The error says what to run.
func Check(ctx context.Context, js jetstream.JetStream, queues []Queue, streams ...string) (Found, error) {
	have, err := inspect(ctx, js, queues, streams...)
	if err != nil {
		return Found{}, err
	}
	var missing []string
	var ages []time.Duration
	newer := false
	for _, q := range queues {
		got, there := have.config(q)
		newer = newer || version(got) > messages.Version
		if !there {
			missing = append(missing, "consumer "+q.Name+" on stream "+q.Stream)
			continue
		}
		if fields := diff(got, q.Config(Limits{AckWait: got.AckWait}), []string{"FilterSubject", "AckPolicy", "MaxDeliver"}); len(fields) > 0 {
			wrong := fields[0]
			return Found{}, fmt.Errorf("consumer %s: %s is %s, must be %s: run `errand provision`", q.Name, wrong.Name, wrong.Have, wrong.Want)
		}
	}
	for _, name := range streams {
		info, there := have.streams[name]
		if !there {
			missing = append(missing, "stream "+name)
			continue
		}
		if problem := incompatible(info.Config); problem != "" {
			return Found{}, fmt.Errorf("stream %s %s: run `errand provision`", name, problem)
		}
		if name != DeadLetters && info.Config.Retention == jetstream.LimitsPolicy {
			ages = append(ages, info.Config.MaxAge)
		}
	}
	if len(missing) > 0 {
		return Found{}, fmt.Errorf("NATS has no %s: run `errand provision --missing` first", strings.Join(missing, ", no "))
	}
	return Found{Queues: have.queues, Streams: have.streams, Kept: shortest(ages), Newer: newer}, nil
}

// CurrentReplicas counts the leader, which answered, and the copies that follow it.
func CurrentReplicas(info *jetstream.StreamInfo) int {
	n := 1
	if info.Cluster == nil { // a single server
		return n
	}
	for _, peer := range info.Cluster.Replicas {
		if peer.Current && !peer.Offline {
			n++
		}
	}
	return n
}
