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

// JetStream opens JetStream and checks that the servers are recent enough.
func JetStream(ctx context.Context, nc *nats.Conn) (jetstream.JetStream, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	var info *jetstream.AccountInfo
	err = persist(ctx, nc, retry.JetStreamStarts, func(ctx context.Context) (err error) {
		info, err = js.AccountInfo(ctx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("nats: JetStream does not answer (is it enabled, may this user ask $JS.API.INFO?): %w", err)
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
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) || errors.Is(err, nats.ErrNoResponders)
}

const (
	errCodeStreamOffline   = 10118
	errCodeConsumerOffline = 10119
)

// peerOffline reports whether a stream could not be placed because a server is away; only the description says so.
func peerOffline(api *jetstream.APIError) bool {
	return api.ErrorCode == errCodeNoPeers && strings.Contains(api.Description, "offline")
}
