// Package callbackreceiver assembles the program callback-receiver: an HTTP server behind the
// ingress that stores what the e-mandate service sends to the return_url of enrollments.
package callbackreceiver

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
	"errand/internal/programs"
	"errand/pkg/messages"
)

// Program stores callbacks.
type Program struct {
	programs.Base
	programs.CallbackSecrets
	programs.Checksum
	Listen         string `env:"CALLBACK_LISTEN" default:":8090" help:"Address to take callbacks on; TLS is the ingress's affair." group:"program"`
	EventPayerData string `env:"EVENT_PAYER_DATA" default:"full" enum:"full,none" help:"What events hold of what was sent: full, or none (a digest and the size)." group:"program"`
}

// Run works until ctx ends and what was begun is answered.
func (p *Program) Run(ctx context.Context) error {
	secrets, err := p.Secrets()
	if err != nil {
		return err
	}
	if len(secrets) == 0 {
		return &programs.Invalid{Variable: "MANDATE_CALLBACK_SECRET", Problem: "is not set: the secret that mandate-consumer makes return_url with (or MANDATE_CALLBACK_SECRET_FILE)"}
	}
	sign, err := p.Secret()
	if err != nil {
		return err
	}
	return p.Receive(ctx, p.Listen, func(with programs.Receiving) *callback.Handler {
		answers := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "errand_callbacks_total",
			Help: "Callbacks, and whatever else was sent, by the HTTP status they were answered with; 200: stored."}, []string{"status"})
		with.Metrics.MustRegister(answers)
		for _, status := range []int{http.StatusOK, http.StatusServiceUnavailable} { // so that the first one is an increase
			answers.WithLabelValues(strconv.Itoa(status))
		}
		return &callback.Handler{Secrets: secrets, Checksum: sign, WithoutPayer: p.EventPayerData == "none", Store: store(with.Publisher, with.Logger),
			Answered: func(status int) { answers.WithLabelValues(strconv.Itoa(status)).Inc() }, Refused: refusals(with.Logger)}
	})
}

// why says of a status why a callback was refused.
var why = map[int]string{
	http.StatusNotFound:              "the path does not end in <request id>/<token>, or the token was made with another secret",
	http.StatusMethodNotAllowed:      "it is neither GET nor POST",
	http.StatusBadRequest:            "the body is cut",
	http.StatusRequestTimeout:        "the body took too long",
	http.StatusRequestEntityTooLarge: "the body is larger than 64 KiB",
	http.StatusRequestURITooLong:     "the query is longer than 8 KiB",
	http.StatusTooManyRequests:       "too many for one request",
	http.StatusServiceUnavailable:    "not stored: NATS did not take it, or too many came at once",
}

// refusals logs callbacks that were refused, of each status no more than one a minute: anybody
// can have many refused.
func refusals(log zerolog.Logger) func(request string, status int) {
	last := map[int]*rate.Sometimes{}
	for status := range why {
		last[status] = &rate.Sometimes{Interval: time.Minute}
	}
	return func(request string, status int) {
		if now := last[status]; now != nil {
			now.Do(func() {
				of := log
				if request != "" {
					of = log.With().Str("request_id", request).Logger()
				}
				of.Warn().Int("http_status", status).Str("problem", why[status]).Msg("callback refused")
			})
		}
	}
}

// store stores callbacks as events.
func store(publisher *bus.Publisher, log zerolog.Logger) func(context.Context, string, *messages.CallbackBody) error {
	events := bus.EventStore{Publisher: publisher, Source: "/errand/callback-receiver"}
	return func(ctx context.Context, request string, body *messages.CallbackBody) error {
		err := events.Callback(ctx, request, body)
		failpoint.Here(failpoint.AfterStore, string(messages.Callback), string(messages.Received))
		if err != nil && !errors.Is(err, bus.ErrManyCallbacks) {
			log.Warn().Str("request_id", request).Err(err).Msg("a callback is not stored; its sender is asked to try again")
		}
		return err
	}
}
