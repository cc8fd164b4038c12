package console

import (
	"cmp"
	"context"
	"crypto/sha256"
	"embed"
	"fmt"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/rs/zerolog"

	"errand/internal/bus"
	"errand/internal/oncall/access"
	"errand/internal/oncall/index"
	"errand/internal/oncall/inspect"
	"errand/internal/programs"
	"errand/internal/retry"
	"errand/internal/style"
)

//go:embed pages
var files embed.FS

//go:embed pages/live.js
var live []byte

var script = style.New("live", ".js", "text/javascript; charset=utf-8", live)

// Server answers browsers.
type Server struct {
	reader  inspect.Reader
	index   *index.Index
	guard   *access.Guard
	sealer  sealer // of links to what was searched for
	secrets *bus.Secrets
	watch   *watch
	runs    *runs
	log     zerolog.Logger
	via     string // the audit's name for this program
	began   time.Time
}

func newServer(with programs.Connected, x *index.Index, guard *access.Guard, secrets *bus.Secrets) *Server {
	s := &Server{reader: inspect.Reader{Conn: with.Conn, JS: with.JetStream, Hide: hideNamed}, index: x, guard: guard,
		sealer: newSealer(), secrets: secrets, runs: new(runs), log: with.Logger, via: "console " + with.Version, began: time.Now()}
	s.watch = &watch{reader: s.reader, index: x}
	return s
}

// view is a page that changes nothing.
type view struct {
	build func(r *http.Request, user access.User) (page, error)
	still bool // it has a form, and does not change while a person fills it in
	role  access.Role
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	for _, asset := range []style.Asset{style.Style, style.Icon, script} {
		mux.Handle("GET "+asset.Path, asset)
	}
	for pattern, v := range map[string]view{
		"GET /{$}":                  {build: s.today},
		"GET /find":                 {build: s.findForm},
		"GET /find/{token}":         {build: s.found},
		"GET /requests":             {build: s.requests},
		"GET /requests/{id}":        {build: s.request},
		"GET /dead-letters":         {build: s.deadLetters},
		"GET /queues":               {build: s.queues},
		"GET /audit":                {build: s.audit},
		"GET /redrives/{run}":       {build: s.redriveRun},
		"GET /redrive":              {build: s.redrivePlan, still: true, role: access.Act},
		"GET /requests/{id}/reveal": {build: s.revealForm, still: true, role: access.Reveal},
		"GET /requests/{id}/cancel": {build: s.cancelForm, still: true, role: access.Act},
		"GET /queues/{queue}/pause": {build: s.pauseForm, still: true, role: access.Act},
		"GET /": {still: true, build: func(*http.Request, access.User) (page, error) {
			return page{}, notFound("There is no such page.")
		}},
	} {
		mux.Handle(pattern, s.guard.Allow(cmp.Or(v.role, access.Read), s.serve(v)))
	}
	mux.Handle("POST /find", s.guard.Allow(access.Read, s.submit(s.startFind)))
	mux.Handle("POST /zone", s.guard.Allow(access.Read, s.setZone))
	mux.Handle("POST /requests/{id}/reveal", s.guard.Allow(access.Reveal, s.revealed))
	for pattern, do := range map[string]action{
		"POST /requests/{id}/cancel":  s.by(s.cancel),
		"POST /redrive":               s.by(s.startRedrive),
		"POST /find/{token}/suppress": s.by(s.suppress),
		"POST /discard":               s.by(s.discard),
		"POST /redrives/{run}/cancel": s.cancelRedrive,
		"POST /queues/{queue}/pause":  s.by(s.pause),
		"POST /queues/{queue}/resume": s.by(s.resume),
	} {
		mux.Handle(pattern, s.guard.Allow(access.Act, s.submit(do)))
	}
	s.guard.Refuse = func(w http.ResponseWriter, r *http.Request, why *access.Refusal) {
		s.show(w, r, access.User{}, s.errorPage(why), "")
	}
	return s.guard.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(retry.PageWrite)) // only servers of tests have none
		mux.ServeHTTP(w, r)
	}))
}

// maxForm is the maximum size of a form in bytes.
const maxForm = 1 << 20

// action does what a form asks for. It returns the path of the page to show then.
type action func(r *http.Request, user access.User) (then string, err error)

// submit answers a form. An action goes on after its browser is gone.
func (s *Server) submit(do action) access.Handler {
	return func(w http.ResponseWriter, r *http.Request, user access.User) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), retry.PageAct)
		defer cancel()
		then, err := do(r.WithContext(ctx), user)
		if err != nil {
			s.show(w, r, user, s.errorPage(err), "")
			return
		}
		http.Redirect(w, r, then, http.StatusSeeOther)
	}
}

// serve answers with a page, or that the browser has its newest version.
func (s *Server) serve(v view) access.Handler {
	return func(w http.ResponseWriter, r *http.Request, user access.User) {
		limit := retry.PageMake
		if v.still {
			limit = retry.PageAct
		}
		ctx, cancel := context.WithTimeout(r.Context(), limit)
		defer cancel()
		r = r.WithContext(ctx)
		tag := s.tag(v, r)
		if tag != "" && r.Header.Get("If-None-Match") == tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		s.show(w, r, user, s.build(v, r, user), tag)
	}
}

// tag changes with the status, which also is when pages say anew how long ago things were, and with the index; "" for a still page.
func (s *Server) tag(v view, r *http.Request) string {
	if v.still {
		return ""
	}
	of := fmt.Sprint(s.began, zoneOf(r), s.watch.notices(), s.watch.version.Load(), s.index.Version())
	return fmt.Sprintf("%q", fmt.Sprintf("%x", sha256.Sum256([]byte(of)))[:16])
}

// build makes a page, or the page that says why not. A panic in one page does not end the others.
func (s *Server) build(v view, r *http.Request, user access.User) (p page) {
	defer func() {
		if fault := recover(); fault != nil {
			p = s.errorPage(fmt.Errorf("console: %v\n%s", fault, debug.Stack()))
		}
	}()
	p, err := v.build(r, user)
	if err != nil {
		return s.errorPage(err)
	}
	return p
}
