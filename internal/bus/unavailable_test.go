package bus_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/sandbox/devkit/devtest"
)

// A cluster that starts or elects a leader answers nobody, or says that it cannot, or each server answers for a stream: the first
// question of each kind is lost here, or refused, or answered so, and the second one is answered.
func TestProvisioningOutlastsTheElectionOfALeader(t *testing.T) {
	const offline = `{"error":{"code":400,"err_code":10005,"description":"no suitable peers for placement, peer offline"}}`
	const unavailable = `{"error":{"code":503,"err_code":10008,"description":"JetStream system temporarily unavailable"}}`
	const leaderless = `{"config":{"name":"OLD"},"cluster":{"name":"c","replicas":[{"name":"n0"},{"name":"n1"},{"name":"n2"}]}}`
	for name, answer := range map[string]string{"silent": "", "unavailable": unavailable, "offline": offline, "leaderless": leaderless} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nc, err := nats.Connect(devtest.Server(t).URL)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(nc.Close)
			asked := map[string]bool{}
			_, err = nc.Subscribe("ELECTING.>", func(m *nats.Msg) {
				question := strings.TrimPrefix(m.Subject, "ELECTING.")
				kind := strings.Join(strings.SplitN(question, ".", 3)[:2], ".")
				if asked[kind] || answer == leaderless && kind != "STREAM.INFO" {
					asked[kind] = true
					_ = nc.PublishRequest("$JS.API."+question, m.Reply, m.Data)
				} else if asked[kind] = true; answer != "" {
					_ = m.Respond([]byte(answer))
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			js, err := jetstream.NewWithAPIPrefix(nc, "ELECTING", jetstream.WithDefaultTimeout(300*time.Millisecond))
			if err != nil {
				t.Fatal(err)
			}
			apply(t, js, bus.Limits{}, false)
			if got := planned(t, js, bus.Limits{}); len(got) != 0 {
				t.Errorf("left to do: %q", got)
			}
			for _, kind := range []string{"CONSUMER.INFO", "STREAM.INFO", "STREAM.CREATE", "CONSUMER.CREATE"} {
				if !asked[kind] {
					t.Errorf("nobody asked %s", kind)
				}
			}
		})
	}
}

// A question is repeated only where a later answer may differ: a fault of the configuration or of storage is reported at once.
func TestOnlyWhatPassesByItselfIsUnavailable(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{&jetstream.APIError{Code: 503, ErrorCode: 10008}, true},
		{jetstream.ErrJetStreamNotEnabled, true}, // a server that starts says so too
		{&jetstream.APIError{Code: 500, ErrorCode: 10118, Description: "stream is offline"}, true},
		{&jetstream.APIError{Code: 500, ErrorCode: 10119, Description: "consumer is offline"}, true},
		{&jetstream.APIError{Code: 400, ErrorCode: 10005, Description: "no suitable peers for placement, peer offline"}, true},
		{fmt.Errorf("stream S: %w", context.DeadlineExceeded), true},
		{nats.ErrTimeout, true},
		{nats.ErrNoResponders, true},
		{bus.ErrLeaderless, true},
		{&jetstream.APIError{Code: 400, ErrorCode: 10005, Description: "no suitable peers for placement, insufficient storage"}, false},
		{&jetstream.APIError{Code: 500, ErrorCode: 10047}, false},
		{&jetstream.APIError{Code: 500, ErrorCode: 10052}, false},
		{jetstream.ErrStreamNotFound, false},
		{context.Canceled, false},
		{nil, false},
	} {
		if got := bus.IsUnavailable(c.err); got != c.want {
			t.Errorf("%v: got %v, want %v", c.err, got, c.want)
		}
	}
}
