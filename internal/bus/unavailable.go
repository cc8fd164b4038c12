package bus

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/retry"
)

// minLevel is the JetStream API level of nats-server 2.14.
const minLevel = 4

// startTries is how often a server is asked that says that it has no JetStream.
const startTries = 20

// starting reports whether err may be that of a server that has just started: it takes
// clients before its JetStream is up.
func starting(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && api.Code >= 500
}

// IsUnavailable reports whether err may be that of a server that restarts just now.
func IsUnavailable(err error) bool {
	return starting(err) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrNoResponders) || errors.Is(err, nats.ErrTimeout)
}

// JetStream opens JetStream and checks that the servers are recent enough.
func JetStream(ctx context.Context, nc *nats.Conn) (jetstream.JetStream, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	info, err := js.AccountInfo(ctx)
	for n := 1; starting(err) && n < startTries && retry.Pause(ctx, retry.Reconnect); n++ {
		info, err = js.AccountInfo(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("nats: JetStream does not answer (is it enabled, may this user ask $JS.API.INFO?): %w", err)
	}
	if info.API.Level < minLevel {
		return nil, fmt.Errorf("nats: server has JetStream API level %d, errand needs %d: run nats-server 2.14 or newer", info.API.Level, minLevel)
	}
	return js, nil
}

// electionTime is for how long a cluster is asked again. A server that has just started counts as offline for up
// to ten seconds more.
const electionTime = 30 * time.Second

// persist makes of an ask that may be repeated one that is repeated while a cluster starts or elects a leader: its
// servers answer nobody meanwhile, or say that they cannot. A user who may not ask is not answered either; that
// is not waited for.
func persist(nc *nats.Conn, ask func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		end := time.Now().Add(electionTime)
		err := ask(ctx)
		for electing(err) && !errors.Is(nc.LastError(), nats.ErrPermissionViolation) && time.Now().Before(end) && retry.Pause(ctx, retry.Reconnect) {
			err = ask(ctx)
		}
		return err
	}
}

// electing reports whether err may be that of a cluster without a leader, or with a server that is not counted yet.
func electing(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && (api.Code == http.StatusServiceUnavailable || peerOffline(api)) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout)
}

// peerOffline reports whether a stream could not be placed because a server is away; the server says so in words alone.
func peerOffline(api *jetstream.APIError) bool {
	return api.ErrorCode == errCodeNoPeers && strings.Contains(api.Description, "offline")
}
