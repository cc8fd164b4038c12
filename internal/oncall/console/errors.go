package console

import (
	"context"
	"errors"
	"net/http"

	"github.com/nats-io/nats.go"

	"errand/internal/bus"
	"errand/internal/oncall/access"
	"errand/internal/oncall/index"
)

// mistake is an error in words for a person, who can do something about it.
type mistake struct {
	Status      int
	Title, Text string
}

func (m *mistake) Error() string { return m.Text }

func notFound(text string) error { return &mistake{http.StatusNotFound, "Not found", text} }
func wrong(text string) error    { return &mistake{http.StatusBadRequest, "Invalid request", text} }

func (s *Server) errorPage(err error) page {
	why := &mistake{http.StatusInternalServerError, "Something went wrong", "The console's log says more."}
	refused, denied := errors.AsType[*access.Refusal](err)
	mine, known := errors.AsType[*mistake](err)
	var large *http.MaxBytesError
	switch {
	case known:
		why = mine
	case denied:
		why = &mistake{refused.Status, refused.Title, refused.Text}
	case errors.Is(err, index.ErrCursor):
		why = &mistake{http.StatusBadRequest, "There is no such page", "The link is incomplete. Start again with the newest."}
	case errors.As(err, &large):
		why = &mistake{http.StatusRequestEntityTooLarge, "Too large", "The form is too large."}
	case bus.Fault(s.reader.Conn) != "", errors.Is(err, nats.ErrTimeout), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, nats.ErrConnectionClosed):
		why = &mistake{http.StatusServiceUnavailable, "NATS does not answer", "This page is read from NATS, and returns as soon as NATS does."}
	case errors.Is(err, bus.ErrNoStream), errors.Is(err, nats.ErrNoResponders):
		why = &mistake{http.StatusServiceUnavailable, "A stream is missing",
			"A stream does not exist, or the console's NATS user may not read it. Has errand provision been run?"}
	case errors.Is(err, context.Canceled):
		why = &mistake{http.StatusServiceUnavailable, "The console is stopping", "Try again in a moment."}
	default:
		s.log.Warn().Err(err).Msg("page failed")
	}
	return page{Title: why.Title, Name: "error", Data: why, Status: why.Status}
}

func (s *Server) refuse(w http.ResponseWriter, r *http.Request, why *access.Refusal) {
	s.show(w, r, access.User{}, s.errorPage(why), "")
}
