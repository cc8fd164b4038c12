// Command signup is a service that enrolls payers and mails each the link at which the mandate is authorized.
//
//	POST /signups/DD001 name, email, phone, payer_id ──> 202, also when it is repeated
//	GET  /signups/DD001                              ──> waiting, sent or failed
//
// NATS_URL says where NATS is. Its tests run it against the programs, by errand/pkg/errandtest.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/pkg/errand"
	"errand/pkg/messages"
)

func main() {
	if err := run(os.Getenv("NATS_URL")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(url string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	nc, err := nats.Connect(url, nats.MaxReconnects(-1))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	s := &service{client: errand.New(js), signups: map[string]signup{}}
	web := &http.Server{Addr: "127.0.0.1:8000", Handler: s.handler(), ReadHeaderTimeout: time.Second}
	ended := make(chan error, 2)
	go func() { ended <- web.ListenAndServe() }()
	go func() { ended <- s.listen(ctx) }()
	return <-ended
}

type signup struct{ email, state string }

type service struct {
	client  *errand.Client
	mu      sync.Mutex
	signups map[string]signup // by order number: your database
}

func (s *service) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /signups/{order}", s.signUp)
	mux.HandleFunc("GET /signups/{order}", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		fmt.Fprint(w, s.signups[r.PathValue("order")].state)
	})
	return mux
}

func (s *service) signUp(w http.ResponseWriter, r *http.Request) {
	order := r.PathValue("order")
	s.mu.Lock()
	if _, known := s.signups[order]; !known { // before it is published: its outcome needs it
		s.signups[order] = signup{r.FormValue("email"), "waiting"}
	}
	s.mu.Unlock()
	_, err := s.client.Publish(r.Context(), messages.EnrollRequest{RequestID: "signup-" + order, Enrollment: messages.Enrollment{
		OrderNumber: order, Amount: "100.50", FrequencyMode: "MT", ApplicationReason: "Membership",
		PayerName: r.FormValue("name"), PayerEmail: r.FormValue("email"), PayerTelephoneNumber: messages.Digits(r.FormValue("phone")),
		PayerIDType: "1", PayerID: messages.Digits(r.FormValue("payer_id")),
	}})
	switch invalid, ok := errors.AsType[*messages.Invalid](err); {
	case ok:
		http.Error(w, invalid.Error(), http.StatusUnprocessableEntity)
	case err != nil: // also errand.ErrNoAck: the same form sent again does no harm
		http.Error(w, "try again", http.StatusServiceUnavailable)
	default:
		w.WriteHeader(http.StatusAccepted)
	}
}

// listen acts on the outcome of each enrollment until ctx ends.
func (s *service) listen(ctx context.Context) error {
	outcomes, err := s.client.Outcomes(ctx, "signup", messages.Enroll, time.Now().Add(-time.Hour))
	if err != nil {
		return err
	}
	outcomes.Only.Prefix = "signup-"
	return outcomes.Run(ctx, s.ended)
}

func (s *service) ended(ctx context.Context, o errand.Outcome) error {
	order := o.About().RequestID[len("signup-"):]
	s.mu.Lock()
	known := s.signups[order]
	s.mu.Unlock()
	switch o := o.(type) {
	case errand.Succeeded:
		link, _ := o.Link()
		if _, err := s.client.Publish(ctx, messages.SendRequest{
			RequestID: "signup-link-" + order, // an outcome may come twice: the mail is sent once
			To:        messages.Recipients(known.email), Subject: "Your membership", Content: "Please authorize it: " + link,
		}); err != nil {
			return err // the outcome comes again
		}
		known.state = "sent"
	case errand.Failed:
		known.state = "failed"
	case errand.Uncertain: // Resolved may follow
	case errand.Resolved: // enrolled or not, its link is lost: a person has to look
		known.state = "failed"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.signups[order] = known
	return nil
}
