package console

import (
	"bytes"
	"context"
	"errors"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"errand/internal/bus"
	"errand/internal/oncall/access"
	"errand/internal/oncall/index"
	"errand/internal/style"
)

// page is the main part of what a browser shows.
type page struct {
	Title  string
	Nav    string // path of the link that leads to pages like it
	Name   string // of its template
	Data   any
	Status int
}

// frame is a page and what surrounds it.
type frame struct {
	page
	User                access.User
	Links               []link
	Notices             []notice
	Problems            int
	Tag                 string // of this version; "" for a page that does not change
	Zone, Path          string // in which times are; of this page
	Style, Icon, Script string
}

type link struct{ Key, Path, Text string }

var links = []link{{"1", "/", "Today"}, {"2", "/find", "Find"}, {"3", "/requests", "Requests"}, {"4", "/dead-letters", "Dead letters"},
	{"5", "/queues", "Queues and programs"}, {"6", "/audit", "Audit"}}

// show writes a page, or its main part for the script of an open one.
func (s *Server) show(w http.ResponseWriter, r *http.Request, user access.User, p page, tag string) {
	part := "layout"
	if r.Header.Get("X-Part") == "main" {
		part = "main"
	}
	var body bytes.Buffer
	zone := zoneOf(r)
	t, err := templates[p.Name].Clone()
	if err == nil {
		err = t.Funcs(times(zone)).ExecuteTemplate(&body, part, frame{page: p, User: user, Links: links, Notices: s.watch.notices(),
			Problems: len(s.watch.get().Status.Problems),
			Tag:      tag, Zone: zone.String(), Path: r.URL.RequestURI(),
			Style: style.Style.Path, Icon: style.Icon.Path, Script: script.Path})
	}
	if err != nil {
		s.log.Error().Err(err).Str("page", p.Name).Msg("page failed")
		http.Error(w, "This page cannot be shown; the console's log says why.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if tag != "" {
		w.Header().Set("ETag", tag)
	}
	if p.Status != 0 {
		w.WriteHeader(p.Status)
	}
	_, _ = w.Write(body.Bytes()) // fails only if the reader is gone
}

// templates are the pages by name, each with the layout. They are cloned before they are executed, with the reader's time zone.
var templates = func() map[string]*template.Template {
	all := map[string]*template.Template{}
	base := template.Must(template.New("").Funcs(words).Funcs(times(time.UTC)).ParseFS(files, "pages/layout.html", "pages/parts.html"))
	names, _ := fs.Glob(files, "pages/*.html") // the pattern is valid
	for _, file := range names {
		if name := strings.TrimSuffix(path.Base(file), ".html"); !slices.Contains([]string{"layout", "parts"}, name) {
			all[name] = template.Must(template.Must(base.Clone()).ParseFS(files, file))
		}
	}
	return all
}()

// refusal is an error in words for a person, who can do something about it.
func refusal(status int, title, text string) *access.Refusal {
	return &access.Refusal{Status: status, Title: title, Text: text}
}

func notFound(text string) error { return refusal(http.StatusNotFound, "Not found", text) }
func wrong(text string) error    { return refusal(http.StatusBadRequest, "Invalid request", text) }

func (s *Server) errorPage(err error) page {
	why := refusal(http.StatusInternalServerError, "Something went wrong", "The console's log says more.")
	refused, known := errors.AsType[*access.Refusal](err)
	var large *http.MaxBytesError
	switch {
	case known:
		why = refused
	case errors.Is(err, index.ErrCursor):
		why = refusal(http.StatusBadRequest, "There is no such page", "The link is incomplete. Start again with the newest.")
	case errors.As(err, &large):
		why = refusal(http.StatusRequestEntityTooLarge, "Too large", "The form is too large.")
	case bus.Fault(s.reader.Conn) != "", errors.Is(err, nats.ErrTimeout), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, nats.ErrConnectionClosed):
		why = refusal(http.StatusServiceUnavailable, "NATS does not answer", "This page is read from NATS, and returns as soon as NATS does.")
	case errors.Is(err, bus.ErrNoStream), errors.Is(err, nats.ErrNoResponders):
		why = refusal(http.StatusServiceUnavailable, "A stream is missing",
			"A stream does not exist, or the console's NATS user may not read it. Has errand provision been run?")
	case errors.Is(err, context.Canceled):
		why = refusal(http.StatusServiceUnavailable, "The console is stopping", "Try again in a moment.")
	default:
		s.log.Warn().Err(err).Msg("page failed")
	}
	return page{Title: why.Title, Name: "error", Data: why, Status: why.Status}
}
