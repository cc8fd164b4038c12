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
	"errand/internal/oncall/inspect"
	"errand/internal/style"
	"errand/pkg/messages"
)

func (s *Server) person(user access.User) (act.Person, error) {
	return act.As(user.Name, s.via, s.reader.Conn, s.reader.JS)
}

// by has an act done by the user, and says in words why it was not.
func (s *Server) by(do func(r *http.Request, p act.Person) (then string, err error)) action {
	return func(r *http.Request, user access.User) (string, error) {
		p, err := s.person(user)
		if err != nil {
			return "", err
		}
		then, err := do(r, p)
		return then, refusedAct(err)
	}
}

func refusedAct(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, act.ErrNoReason):
		return wrong("Nothing was done: a reason is required. The audit keeps it.")
	case errors.Is(err, act.ErrNotRecorded):
		return refusal(http.StatusServiceUnavailable, "Nothing was done",
			"It could not be recorded in the audit first. Does NATS answer, and has errand provision created the stream AUDIT?")
	case errors.Is(err, act.ErrNothingDone):
		return refusal(http.StatusConflict, "Nothing was done", style.Capital(hideAddresses(strings.TrimPrefix(
			err.Error(), act.ErrNothingDone.Error()+": ")))+".")
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		return refusal(http.StatusServiceUnavailable, "NATS does not answer",
			"It is unknown whether it was done. Once NATS answers, see the audit and the page of the request or queue.")
	}
	return err
}

func (s *Server) pause(r *http.Request, p act.Person) (string, error) {
	queue, err := s.queueNamed(r)
	if err != nil {
		return "", err
	}
	how, err := time.ParseDuration(r.FormValue("for"))
	if err != nil || how <= 0 || how > act.MaxPause {
		return "", wrong("A pause must be a time such as 30m, at most 7 days.")
	}
	_, err = p.Pause(r.Context(), queue, how, r.FormValue("why"))
	s.watch.look(r.Context())
	return "/queues", err
}

func (s *Server) resume(r *http.Request, p act.Person) (string, error) {
	queue, err := s.queueNamed(r)
	if err == nil {
		err = p.Resume(r.Context(), queue, r.FormValue("why"))
	}
	s.watch.look(r.Context())
	return "/queues", err
}

type actForm struct {
	ID        string
	Operation messages.Operation
}

func formOf(r *http.Request) (f actForm, err error) {
	if f.ID = r.PathValue("id"); !inspect.IsID(f.ID) {
		return f, notFound("That is not a request id.")
	}
	f.Operation, err = operationNamed(r.FormValue("operation"))
	return f, err
}

func (s *Server) cancelForm(r *http.Request, _ access.User) (page, error) {
	f, err := formOf(r)
	return page{Title: "Cancel " + f.ID, Nav: "/requests", Name: "cancel", Data: f}, err
}

func (s *Server) cancel(r *http.Request, p act.Person) (string, error) {
	f, err := formOf(r)
	if err == nil {
		_, err = p.Requests().Cancel(r.Context(), f.Operation, f.ID, r.FormValue("why"))
	}
	return "/requests/" + f.ID, err
}
