package programs

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"golang.org/x/time/rate"

	"errand/internal/bus"
	"errand/internal/callback"
	"errand/internal/failpoint"
	"errand/pkg/messages"
)

// CallbackReceiver stores what the e-mandate service sends to the return_url of enrollments. It runs behind the ingress.
type CallbackReceiver struct {
	Base
	CallbackSecrets
	Checksum
	Listen         string `env:"CALLBACK_LISTEN" default:":8090" help:"Address to take callbacks on; the ingress terminates TLS." group:"program"`
	EventPayerData string `env:"EVENT_PAYER_DATA" default:"full" enum:"full,none" help:"What events hold of what was sent: full, or none (a digest and the size)." group:"program"`
}

// Run works until ctx ends and what was begun is answered.
func (p *CallbackReceiver) Run(ctx context.Context) error {
	secrets, noSecrets := p.secrets()
	checksum, noChecksum := p.secret()
	if err := errors.Join(p.validate(), noSecrets, noChecksum, invalidIf(noSecrets == nil && len(secrets) == 0, "MANDATE_CALLBACK_SECRET",
		"is not set: the secret that mandate-consumer makes return_url with (or MANDATE_CALLBACK_SECRET_FILE)")); err != nil {
		return err
	}
	listener, err := listen("CALLBACK_LISTEN", p.Listen, "127.0.0.1:8091")
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }() // as a rule the server has

	r, err := p.start(ctx, bus.CallbackReceiver, "")
	if err != nil {
		return err
	}
	defer r.close()
	if _, err := r.check(ctx, nil, bus.MandateCallbacks); err != nil {
		return err
	}

	answers := r.metrics.counters("status", "errand_callbacks_total",
		"Callbacks, and whatever else was sent, by the HTTP status they were answered with; 200: stored.")
	answered := func(status int) prometheus.Counter { return answers.WithLabelValues(strconv.Itoa(status)) }
	answered(http.StatusOK) // begins at zero, so that the first one is an increase
	answered(http.StatusServiceUnavailable)
	logged := logRefusals(r.log)
	handler := &callback.Handler{Secrets: secrets, Checksum: checksum, WithoutPayer: p.EventPayerData == "none", Store: storeCallbacks(r),
		Answered: func(request string, status int) {
			answered(status).Inc()
			logged(request, status)
		}}
	r.log.Info().Str("addr", listener.Addr().String()).Msg("listens")
	server, limited := callback.Server(handler, listener)
	return r.work(ctx, p.ShutdownGrace, func(ctx, hard context.Context) error { return Serve(ctx, hard, server, limited) })
}

func storeCallbacks(r *runtime) func(context.Context, string, *messages.CallbackBody) error {
	events := bus.EventStore{Publisher: r.publisher, Source: "/errand/callback-receiver"}
	return func(ctx context.Context, request string, body *messages.CallbackBody) error {
		err := events.Callback(ctx, request, body)
		failpoint.Here(failpoint.AfterStore, string(messages.Callback), string(messages.Received))
		if err != nil && !errors.Is(err, bus.ErrManyCallbacks) {
			r.log.Warn().Str("request_id", request).Err(err).Msg("a callback is not stored; its sender is asked to try again")
		}
		return err
	}
}

var whyRefused = map[int]string{
	http.StatusNotFound:              "the path does not end in <request id>/<token>, or the token was made with another secret",
	http.StatusMethodNotAllowed:      "it is neither GET nor POST",
	http.StatusBadRequest:            "the body is cut",
	http.StatusRequestTimeout:        "the body took too long",
	http.StatusRequestEntityTooLarge: "the body is larger than 64 KiB",
	http.StatusRequestURITooLong:     "the query is longer than 8 KiB",
	http.StatusTooManyRequests:       "too many for one request",
	http.StatusServiceUnavailable:    "not stored: NATS did not take it, or too many came at once",
}

// logRefusals logs refused callbacks, at most one a minute for each status: anybody can have many refused.
func logRefusals(log zerolog.Logger) func(request string, status int) {
	last := map[int]*rate.Sometimes{}
	for status := range whyRefused {
		last[status] = &rate.Sometimes{Interval: time.Minute}
	}
	return func(request string, status int) {
		if now := last[status]; now != nil {
			now.Do(func() {
				of := log
				if request != "" {
					of = log.With().Str("request_id", request).Logger()
				}
				of.Warn().Int("http_status", status).Str("problem", whyRefused[status]).Msg("callback refused")
			})
		}
	}
}
