package bus

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/retry"
	"errand/pkg/messages"
)

// installed is what the servers have, by name.
type installed struct {
	streams map[string]*jetstream.StreamInfo
	queues  map[string]jetstream.Consumer
}

// lanes are the lanes of the streams, and more.
func (i installed) lanes(more ...string) []string {
	for _, name := range []string{MandateRequests, MailRequests} {
		if s := i.streams[name]; s != nil {
			more = append(more, LanesOf(s.Config)...)
		}
	}
	slices.Sort(more)
	return slices.Compact(more)
}

func (i installed) config(q Queue) (config jetstream.ConsumerConfig, there bool) {
	c, there := i.queues[q.Name]
	if there {
		config = c.CachedInfo().Config
	}
	return config, there
}

// inspect reads streams, and the queues that there may be, given their lanes.
func inspect(ctx context.Context, js jetstream.JetStream, queues func(installed) []Queue, streams ...string) (installed, error) {
	have := installed{map[string]*jetstream.StreamInfo{}, map[string]jetstream.Consumer{}}
	for _, name := range streams {
		info, err := StreamInfo(ctx, js, name)
		switch {
		case err == nil:
			have.streams[name] = info
		case !errors.Is(err, jetstream.ErrStreamNotFound):
			return have, fmt.Errorf("stream %s: %w", name, err)
		}
	}
	for _, q := range queues(have) {
		c, err := js.Consumer(ctx, q.Stream, q.Name)
		switch {
		case err == nil:
			have.queues[q.Name] = c
		case !errors.Is(err, jetstream.ErrConsumerNotFound) && !errors.Is(err, jetstream.ErrStreamNotFound):
			return have, fmt.Errorf("consumer %s: %w", q.Name, err)
		}
	}
	return have, nil
}

// errLeaderless: nothing can be stored, and what is read may be old.
var errLeaderless = errors.New("nats: the stream has no leader")

// StreamInfo is what a stream's leader says of it. Where there is none, each server of a minority answers with what it has.
func StreamInfo(ctx context.Context, js jetstream.JetStream, name string, with ...jetstream.StreamInfoOpt) (*jetstream.StreamInfo, error) {
	s, err := js.Stream(ctx, name)
	if err != nil {
		return nil, err
	}
	info := s.CachedInfo()
	if len(with) > 0 {
		if info, err = s.Info(ctx, with...); err != nil {
			return nil, err
		}
	}
	if info.Cluster != nil && info.Cluster.Leader == "" {
		return nil, errLeaderless
	}
	return info, nil
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
	All     []Queue                          // those that were asked for, and the other lanes' of the same operations
	Streams map[string]*jetstream.StreamInfo // by name
	Kept    time.Duration                    // how long events are kept in the stream that keeps them shortest; 0 means for ever
	Newer   bool                             // a queue was provisioned for newer requests than this program knows: a rolling upgrade
}

// Check reports whether what a program needs is there and compatible. It adds to queues those of the other lanes. The error says what to
// run.
func Check(ctx context.Context, js jetstream.JetStream, queues []Queue, streams ...string) (Found, error) {
	have, err := inspect(ctx, js, func(have installed) []Queue {
		for _, q := range slices.Clone(queues) {
			if q.Lane() == "" {
				others := slices.DeleteFunc(q.WithLanes(have.lanes()...), func(of Queue) bool { return slices.Contains(queues, of) })
				queues = append(queues, others...)
			}
		}
		return queues
	}, streams...)
	if err != nil {
		return Found{}, err
	}
	var missing []string
	var ages []time.Duration
	newer := false
	for _, q := range queues {
		got, there := have.config(q)
		newer = newer || version(got) > messages.Version
		if lane := q.Lane(); !there && lane != "" {
			return Found{}, fmt.Errorf("NATS has no consumer %s on stream %s: run `errand provision --lanes %s` first", q.Name, q.Stream, lane)
		}
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
	return Found{Queues: have.queues, All: queues, Streams: have.streams, Kept: shortest(ages), Newer: newer}, nil
}

// CurrentReplicas counts the leader and the copies that follow it.
func CurrentReplicas(cluster *jetstream.ClusterInfo) int {
	switch {
	case cluster == nil: // a single server
		return 1
	case cluster.Leader == "":
		return 0
	}
	behind := func(peer *jetstream.PeerInfo) bool { return !peer.Current || peer.Offline }
	return 1 + len(slices.DeleteFunc(slices.Clone(cluster.Replicas), behind))
}

// minLevel is the JetStream API level of nats-server 2.14.
const minLevel = 4

// JetStream opens JetStream and checks that the servers are recent enough.
func JetStream(ctx context.Context, nc *nats.Conn) (jetstream.JetStream, error) {
	js, err := OpenJetStream(nc)
	if err != nil {
		return nil, err
	}
	var info *jetstream.AccountInfo
	err = persist(ctx, nc, retry.JetStreamStarts, func(ctx context.Context) (err error) {
		info, err = js.AccountInfo(ctx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("nats: JetStream does not answer (is it enabled, may this user ask %s?): %w", api(nc, "INFO"), err)
	}
	if info.API.Level < minLevel {
		return nil, fmt.Errorf("nats: server has JetStream API level %d, must be %d: run nats-server 2.14 or newer", info.API.Level, minLevel)
	}
	return js, nil
}

// persist asks again, for so long, while JetStream is unavailable. It does not wait for a right that the user lacks.
func persist(ctx context.Context, nc *nats.Conn, patience time.Duration, ask func(context.Context) error) error {
	end := time.Now().Add(patience)
	err := ask(ctx)
	for IsUnavailable(err) && !errors.Is(nc.LastError(), nats.ErrPermissionViolation) && time.Now().Before(end) {
		if !retry.Pause(ctx, retry.Reconnect) {
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		err = ask(ctx)
	}
	return err
}

// IsUnavailable reports whether JetStream may answer the same question a little later: a server that starts accepts
// clients before its JetStream is up, and a cluster that elects a leader is silent or refuses.
func IsUnavailable(err error) bool {
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		offline := api.ErrorCode == errCodeStreamOffline || api.ErrorCode == errCodeConsumerOffline || peerOffline(api)
		return offline || api.Code == http.StatusServiceUnavailable
	}
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) || errors.Is(err, nats.ErrNoResponders) ||
		errors.Is(err, errLeaderless)
}

const (
	errCodeStreamOffline   = 10118
	errCodeConsumerOffline = 10119
)

// peerOffline reports whether a stream could not be placed because a server is away; only the description says so.
func peerOffline(api *jetstream.APIError) bool {
	return api.ErrorCode == errCodeNoPeers && strings.Contains(api.Description, "offline")
}
