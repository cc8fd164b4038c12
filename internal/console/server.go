package console

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"errand/internal/access"
	"errand/internal/app"
	"errand/internal/bus"
	"errand/internal/index"
	"errand/internal/inspect"
	"errand/internal/look"
	"errand/internal/retry"
	"errand/pkg/messages"
)

//go:embed pages
var files embed.FS

var script = look.New("live", ".js", "text/javascript; charset=utf-8", mustRead("pages/live.js"))

// Server answers browsers.
type Server struct {
	reader  inspect.Reader
	index   *index.Index
	guard   *access.Guard
	secrets []*messages.RecipientSecret
	watch   *watch
	live    *live
	runs    *runs
	views   *http.ServeMux // of pages that only show; see find
	log     zerolog.Logger
	via     string // what the audit says that was used
}

func newServer(with app.Connected, x *index.Index, guard *access.Guard, secrets []*messages.RecipientSecret) *Server {
	s := &Server{reader: inspect.Reader{Conn: with.Conn, JS: with.JetStream}, index: x, guard: guard, secrets: secrets,
		log: with.Logger, via: "console " + with.Version, views: http.NewServeMux()}
	s.watch = newWatch(s.reader, x)
	s.live = newLive(s)
	s.runs = newRuns()
	for pattern, view := range map[string]view{
		"GET /{$}":                  {build: s.today},
		"GET /find":                 {build: s.findForm},
		"GET /find/{token}":         {build: s.found},
		"GET /requests":             {build: s.requests},
		"GET /requests/{id}":        {build: s.request, stamp: s.stampOfRequest},
		"GET /dead-letters":         {build: s.deadLetters},
		"GET /queues":               {build: s.queues},
		"GET /audit":                {build: s.audit},
		"GET /redrives/{run}":       {build: s.redriveRun, stamp: s.stampOfRun},
		"GET /redrive":              {build: s.redrivePlan, still: true},
		"GET /requests/{id}/reveal": {build: s.revealForm, still: true},
		"GET /requests/{id}/cancel": {build: s.cancelForm, still: true},
		"GET /queues/{queue}/pause": {build: s.pauseForm, still: true},
	} {
		s.views.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if m, ok := w.(*match); ok {
				m.view, m.request = view, r
			}
		})
	}
	return s
}

// view is a page that only shows. A page with a form stands still while somebody fills it in.
type view struct {
	build func(r *http.Request, user access.User) (page, error)
	// stamp changes with what the page shows, and costs less than to make it again; nil: it
	// shows whatever changes.
	stamp func(r *http.Request) string
	still bool
}

// match is a response that takes the view which a path leads to.
type match struct {
	http.ResponseWriter
	view
	request *http.Request
}

// find gives the view that a request asks for; one without build where there is none.
func (s *Server) find(r *http.Request) (view, *http.Request) {
	m := &match{ResponseWriter: discard{}, request: r}
	s.views.ServeHTTP(m, r)
	return m.view, m.request
}

// discard is a response that nobody gets.
type discard struct{}

func (discard) Header() http.Header         { return http.Header{} }
func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) WriteHeader(int)             {}

// handler serves everything.
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	for _, asset := range []look.Asset{look.Style, look.Icon, script} {
		mux.Handle("GET "+asset.Path, asset)
	}
	mux.Handle("GET /live", s.guard.Allow(access.Read, s.serveLive))
	mux.Handle("GET /", s.guard.Allow(access.Read, s.serveView))
	mux.Handle("POST /find", s.guard.Allow(access.Read, s.submit(s.startFind)))
	mux.Handle("POST /requests/{id}/reveal", s.guard.Allow(access.Reveal, s.revealed))
	for pattern, do := range map[string]action{
		"POST /requests/{id}/cancel":  s.cancel,
		"POST /redrive":               s.startRedrive,
		"POST /redrives/{run}/cancel": s.cancelRedrive,
		"POST /queues/{queue}/pause":  s.pause,
		"POST /queues/{queue}/resume": s.resume,
	} {
		mux.Handle(pattern, s.guard.Allow(access.Act, s.submit(do)))
	}
	s.guard.Refuse = s.refuse
	return s.guard.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(retry.PageWrite)) // of every server but those of tests
		mux.ServeHTTP(w, r)
	}))
}

// maxForm bounds what a browser may send.
const maxForm = 1 << 20

// action is what a form asks for. It gives the path of the page that shows what came of it.
type action func(r *http.Request, user access.User) (then string, err error)

// submit answers a form.
func (s *Server) submit(do action) access.Handler {
	return func(w http.ResponseWriter, r *http.Request, user access.User) {
		then, err := do(r, user)
		if err != nil {
			s.show(w, r, user, s.errorPage(err), view{still: true})
			return
		}
		http.Redirect(w, r, then, http.StatusSeeOther)
	}
}

func (s *Server) serveView(w http.ResponseWriter, r *http.Request, user access.User) {
	v, r := s.find(r)
	if v.build == nil {
		s.show(w, r, user, s.errorPage(notFound("There is no page of that name.")), view{still: true})
		return
	}
	s.show(w, r, user, s.build(v, r, user), v)
}

// build makes a page, or the one that says why it cannot be made.
func (s *Server) build(v view, r *http.Request, user access.User) page {
	p, err := v.build(r, user)
	if err != nil {
		return s.errorPage(err)
	}
	return p
}

// page is what is shown in the middle of the window.
type page struct {
	Title  string
	Nav    string // path of the link to the pages of its kind
	Name   string // of its template
	Data   any
	Status int
}

// frame is a page and what is around it.
type frame struct {
	page
	User                access.User
	Links               []link
	Notices             []notice
	Live                string // where to hear of changes, and which version this is
	Version             string
	Style, Icon, Script string
}

type link struct{ Path, Text string }

var links = []link{{"/", "Today"}, {"/find", "Find"}, {"/requests", "Requests"}, {"/dead-letters", "Dead letters"}, {"/queues", "Queues and programs"}, {"/audit", "Audit"}}

// show writes a page.
func (s *Server) show(w http.ResponseWriter, r *http.Request, user access.User, p page, v view) {
	f := frame{page: p, User: user, Links: links, Notices: s.watch.notices(), Style: look.Style.Path, Icon: look.Icon.Path, Script: script.Path}
	body, err := inner(f)
	if err != nil {
		s.log.Error().Err(err).Str("page", p.Name).Msg("page cannot be made")
		http.Error(w, "This page cannot be shown; the console's log says why.", http.StatusInternalServerError)
		return
	}
	if !v.still {
		f.Live, f.Version = "/live?of="+url.QueryEscape(r.URL.RequestURI()), versionOf(body)
	}
	var all bytes.Buffer
	err = templates[p.Name].ExecuteTemplate(&all, "layout", struct {
		frame
		Main template.HTML
	}{f, template.HTML(body)}) //nolint:gosec // a template made it
	if err != nil {
		s.log.Error().Err(err).Str("page", p.Name).Msg("page cannot be made")
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if p.Status != 0 {
		w.WriteHeader(p.Status)
	}
	_, _ = all.WriteTo(w) // fails only when the reader is gone
}

// inner is the part of a page that changes while it is open.
func inner(f frame) ([]byte, error) {
	var body bytes.Buffer
	err := templates[f.Name].ExecuteTemplate(&body, "main", f)
	return compact(body.Bytes()), err
}

// compact leaves out the white space that templates leave at the begin of lines, and empty lines.
func compact(body []byte) []byte {
	var out bytes.Buffer
	keep := false // inside of <pre>
	for line := range bytes.Lines(body) {
		if !keep {
			line = bytes.TrimLeft(line, " \t\r\n")
		}
		out.Write(line)
		if open := bytes.LastIndex(line, []byte("<pre")); open >= 0 {
			keep = !bytes.Contains(line[open:], []byte("</pre>"))
		} else if bytes.Contains(line, []byte("</pre>")) {
			keep = false
		}
	}
	return out.Bytes()
}

func versionOf(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:8])
}

// mistake is an error that a person can do something about.
type mistake struct {
	Status      int
	Title, Text string
}

func (m *mistake) Error() string { return m.Text }

func notFound(text string) error { return &mistake{http.StatusNotFound, "Not found", text} }
func wrong(text string) error    { return &mistake{http.StatusBadRequest, "That cannot be done", text} }

// errorPage says in plain words what is wrong.
func (s *Server) errorPage(err error) page {
	why := &mistake{http.StatusInternalServerError, "Something went wrong", "The console's log says what it was."}
	refused, denied := errors.AsType[*access.Refusal](err)
	mine, known := errors.AsType[*mistake](err)
	var large *http.MaxBytesError
	switch {
	case known:
		why = mine
	case denied:
		why = &mistake{refused.Status, refused.Title, refused.Text}
	case errors.As(err, &large):
		why = &mistake{http.StatusRequestEntityTooLarge, "Too much", "The form holds too much."}
	case bus.Fault(s.reader.Conn) != "", errors.Is(err, nats.ErrTimeout), errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrConnectionClosed):
		why = &mistake{http.StatusServiceUnavailable, "NATS does not answer", "This page is read from NATS. It comes back by itself as soon as NATS does."}
	case errors.Is(err, bus.ErrNoStream), errors.Is(err, nats.ErrNoResponders):
		why = &mistake{http.StatusServiceUnavailable, "A stream is missing", "A stream that this page reads is not there, or the console's NATS user may not read it. Has errand provision been run?"}
	case errors.Is(err, context.Canceled):
		why = &mistake{http.StatusServiceUnavailable, "The console is stopping", "Try again in a moment."}
	default:
		s.log.Warn().Err(err).Msg("page cannot be made")
	}
	return page{Title: why.Title, Name: "error", Data: why, Status: why.Status}
}

// refuse shows why somebody is not let in.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, why *access.Refusal) {
	p := s.errorPage(why)
	p.Data = why
	p.Name = "refused"
	s.show(w, r, access.User{}, p, view{still: true})
}

// templates are the pages by name, each with the layout.
var templates = func() map[string]*template.Template {
	all := map[string]*template.Template{}
	base := template.Must(template.New("").Funcs(words).ParseFS(files, "pages/layout.html", "pages/parts.html"))
	names, err := fs.Glob(files, "pages/*.html")
	if err != nil {
		panic(err)
	}
	for _, file := range names {
		if name := strings.TrimSuffix(path.Base(file), ".html"); !slices.Contains([]string{"layout", "parts"}, name) {
			all[name] = template.Must(template.Must(base.Clone()).ParseFS(files, file))
		}
	}
	return all
}()

func mustRead(name string) []byte {
	text, err := files.ReadFile(name)
	if err != nil {
		panic(err)
	}
	return text
}
