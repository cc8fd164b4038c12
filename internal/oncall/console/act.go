package console

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"errand/internal/oncall/access"
	"errand/internal/oncall/act"
	"errand/pkg/messages"
)

// person returns the user as the audit names them.
func (s *Server) person(user access.User) (act.Person, error) {
	return act.As(user.Name, s.via, s.reader.Conn, s.reader.JS)
}

func (s *Server) do(ctx context.Context, user access.User, a act.Act, do func(context.Context) (string, error)) (string, error) {
	p, err := s.person(user)
	if err != nil {
		return "", err
	}
	return p.Do(ctx, a, do)
}

func refusedAct(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, act.ErrNoReason):
		return wrong("Nothing was done: a reason is required. The audit keeps it.")
	case errors.Is(err, act.ErrNotRecorded):
		return &mistake{http.StatusServiceUnavailable, "Nothing was done",
			"It could not be recorded in the audit first. Does NATS answer, and has errand provision created the stream AUDIT?"}
	case errors.Is(err, act.ErrNothingDone):
		return &mistake{http.StatusConflict, "Nothing was done", capital(hideIn(strings.TrimPrefix(err.Error(),
			act.ErrNothingDone.Error()+": "))) + "."}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		return &mistake{http.StatusServiceUnavailable, "NATS does not answer",
			"It is unknown whether it was done. Once NATS answers, see the audit and the page of the request or queue."}
	}
	return err
}

func capital(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

func forbidden(user access.User) error {
	return &mistake{http.StatusForbidden, "Not allowed", user.Name + " needs the role act for this."}
}

func (s *Server) pause(r *http.Request, user access.User) (string, error) {
	op, err := operationNamed(r.PathValue("queue"))
	if err != nil {
		return "", err
	}
	how, err := time.ParseDuration(r.FormValue("for"))
	if err != nil || how <= 0 || how > act.MaxPause {
		return "", wrong("A pause must be a time such as 30m, at most 7 days.")
	}
	p, err := s.person(user)
	if err == nil {
		_, err = p.Pause(r.Context(), op, how, r.FormValue("why"))
	}
	s.watch.look(r.Context())
	return "/queues", refusedAct(err)
}

func (s *Server) resume(r *http.Request, user access.User) (string, error) {
	op, err := operationNamed(r.PathValue("queue"))
	if err != nil {
		return "", err
	}
	p, err := s.person(user)
	if err == nil {
		err = p.Resume(r.Context(), op, r.FormValue("why"))
	}
	s.watch.look(r.Context())
	return "/queues", refusedAct(err)
}

type actForm struct {
	ID        string
	Operation messages.Operation
}

func formOf(r *http.Request, user access.User) (actForm, error) {
	f := actForm{ID: r.PathValue("id")}
	if !user.May(access.Act) {
		return f, forbidden(user)
	}
	if !messages.IsID(f.ID) {
		return f, notFound("That is not a request id.")
	}
	var err error
	f.Operation, err = operationNamed(r.FormValue("operation"))
	return f, err
}

func (s *Server) cancelForm(r *http.Request, user access.User) (page, error) {
	f, err := formOf(r, user)
	return page{Title: "Cancel " + f.ID, Nav: "/requests", Name: "cancel", Data: f}, err
}

func (s *Server) cancel(r *http.Request, user access.User) (string, error) {
	f, err := formOf(r, user)
	if err != nil {
		return "", err
	}
	p, err := s.person(user)
	if err == nil {
		_, err = p.Requests().Cancel(r.Context(), f.Operation, f.ID, r.FormValue("why"))
	}
	return "/requests/" + f.ID, refusedAct(err)
}

func (s *Server) eraseForm(r *http.Request, user access.User) (page, error) {
	f, err := formOf(r, user)
	if err != nil {
		return page{}, err
	}
	erasure, err := act.ErasureOf(r.Context(), s.reader, f.Operation, f.ID, time.Now())
	if err != nil && !errors.Is(err, act.ErrNothingDone) {
		return page{}, err
	}
	return page{Title: "Erase " + f.ID, Nav: "/requests", Name: "erase", Data: erasure}, refusedAct(err)
}

// erase removes what is stored of a request, if the console's NATS user may.
func (s *Server) erase(r *http.Request, user access.User) (string, error) {
	f, err := formOf(r, user)
	if err != nil {
		return "", err
	}
	erasure, err := act.ErasureOf(r.Context(), s.reader, f.Operation, f.ID, time.Now())
	if err != nil {
		return "", refusedAct(err)
	}
	p, err := s.person(user)
	if err == nil {
		err = p.Erase(r.Context(), erasure, r.FormValue("why"))
	}
	return "/requests/" + f.ID, refusedAct(err)
}
