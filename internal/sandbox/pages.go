package sandbox

import (
	"bytes"
	"embed"
	"errors"
	"html/template"
	"net/http"
	"strings"
	"time"

	"errand/internal/style"
)

//go:embed pages/*.html
var pageFiles embed.FS

var pages = template.Must(template.New("").Funcs(template.FuncMap{"head": headOf}).ParseFS(pageFiles, "pages/*.html"))

// head is what each page begins with.
type head struct {
	Title, Path, Style, Icon string
	Links                    []pageOf
}

// pageOf is a page that the others link to.
type pageOf struct{ Path, Text string }

var pageList = []pageOf{{"/", "Overview"}, {"/calls", "Calls"}, {"/mail", "Mail"}}

func headOf(title, path string) head {
	return head{title, path, style.Style.Path, style.Icon.Path, pageList}
}

const (
	callsOnIndex       = 12
	enrollmentsPerPage = 50
	messagesPerPage    = 25
	recipientsShown    = 20
)

// servePages serves the pages for people.
func (s *Sandbox) servePages(w http.ResponseWriter, r *http.Request) {
	token, enrolling := strings.CutPrefix(r.URL.Path, "/enroll/")
	reading := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case enrolling && r.Method == http.MethodPost && foreignOrigin(r):
		http.Error(w, "a page elsewhere may not decide", http.StatusForbidden)
	case enrolling && r.Method == http.MethodPost:
		s.postDecision(w, r, token)
	case !reading:
		w.Header().Set("Allow", "GET")
		http.Error(w, "read-only", http.StatusMethodNotAllowed)
	case enrolling:
		s.enrollmentPage(w, token)
	case r.URL.Path == "/":
		s.indexPage(w, r)
	case r.URL.Path == "/mail":
		s.mailPage(w, r)
	case r.URL.Path == "/calls": // it shows what was said: only for requests that name this sandbox
		s.guarded(http.HandlerFunc(s.callsPage)).ServeHTTP(w, r)
	case r.URL.Path == style.Style.Path:
		style.Style.ServeHTTP(w, r)
	case r.URL.Path == style.Icon.Path:
		style.Icon.ServeHTTP(w, r)
	default:
		http.NotFound(w, r)
	}
}

func show(w http.ResponseWriter, name string, data any) {
	var page bytes.Buffer
	if err := pages.ExecuteTemplate(&page, name, data); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy",
		"default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; frame-ancestors 'none'")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = page.WriteTo(w) // fails only when the reader is gone
}

// pageLinks are the numbers of a page's neighbours; 0 means no neighbour.
type pageLinks struct{ Before, After int }

func linksOf(page, perPage, total int) pageLinks {
	t := pageLinks{Before: page - 1}
	if page*perPage < total {
		t.After = page + 1
	}
	return t
}

// enrollmentView is an enrollment as the pages show it.
type enrollmentView struct {
	Token, OrderNumber, PayerName, Reason, Amount, Frequency, Effective, Expiry, At string

	Status, Mandate string
	Open            bool
	Return          string // where the link back to the merchant leads
}

func (s *Sandbox) view(n int, e *enrollment) enrollmentView {
	v, status := e.values(), e.status(time.Now())
	if e.tx != txNew {
		status = e.tx // the payer knows before the list shows it
	}
	view := enrollmentView{
		Token: s.token(n), OrderNumber: e.order, PayerName: v["payer_name"], Reason: v["application_reason"],
		Amount: decimal(e.cents), Frequency: frequency(v["frequency_mode"]),
		Effective: s.effective(e, v), Expiry: v["expiry_date"],
		At:     time.UnixMilli(e.at).In(s.zone).Format(time.DateTime),
		Status: txLabels[status], Mandate: mandateLabels[e.mandate], Open: status == txNew,
	}
	switch status {
	case txApproved:
		view.Return = v["success_url"]
	case txFailed, txCancelled, txExpired:
		view.Return = v["failed_url"]
	}
	return view
}

func (s *Sandbox) indexPage(w http.ResponseWriter, r *http.Request) {
	page := positiveInt(r.URL.Query().Get("page"), 1)
	data := struct {
		pageLinks
		Oracle                 Oracle
		Tallies                [operations]tally
		Refused, Failed, Reads int // of several operations together
		Fired, Faults          int
		Calls                  []callView
		Enrollments            []enrollmentView
	}{Oracle: s.Oracle(Query{Summary: true}), Tallies: s.journal.tallies(), Calls: s.journal.views(callsOnIndex, s.zone, false)}
	for op, n := range data.Tallies {
		data.Refused, data.Failed = data.Refused+n.Refused, data.Failed+n.Failed
		if !operation(op).post() {
			data.Reads += n.Accepted
		}
	}
	for _, n := range data.Oracle.Faults {
		data.Fired += n
	}
	for _, f := range s.Faults() {
		if f.Times == 0 || f.Fired < f.Times {
			data.Faults++
		}
	}
	total := data.Oracle.Enroll.Accepted
	data.pageLinks = linksOf(page, enrollmentsPerPage, total)
	for n := total - 1 - (page-1)*enrollmentsPerPage; n >= 0 && len(data.Enrollments) < enrollmentsPerPage; n-- {
		if e, ok := s.registry.get(n); ok {
			data.Enrollments = append(data.Enrollments, s.view(n, &e))
		}
	}
	show(w, "index", data)
}

// callsPage shows the last calls with what was said.
func (s *Sandbox) callsPage(w http.ResponseWriter, _ *http.Request) {
	show(w, "calls", s.journal.views(callsKept, s.zone, true))
}

func (s *Sandbox) enrollmentPage(w http.ResponseWriter, token string) {
	n, e, known := s.enrollmentOf(token)
	if !known {
		http.Error(w, "no such enrollment", http.StatusNotFound)
		return
	}
	show(w, "enroll", s.view(n, &e))
}

// postDecision handles the payer's buttons. A second decision changes nothing and shows the first one.
func (s *Sandbox) postDecision(w http.ResponseWriter, r *http.Request, token string) {
	n, _, known := s.enrollmentOf(token)
	if !known {
		http.Error(w, "no such enrollment", http.StatusNotFound)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, 1<<16)
	if err := s.decide(n, r.PostFormValue("decision")); err != nil && !errors.Is(err, ErrDecided) {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	http.Redirect(w, r, "/enroll/"+token, http.StatusSeeOther)
}

// messageView is a message as the page of sent mail shows it.
type messageView struct {
	Subject, From, At string
	Count, More       int
	To                []struct{ Address, Status string }
}

func (s *Sandbox) mailPage(w http.ResponseWriter, r *http.Request) {
	page := positiveInt(r.URL.Query().Get("page"), 1)
	messages, total := s.outbox.messageViews((page-1)*messagesPerPage, s.zone)
	show(w, "mail", struct {
		pageLinks
		Messages []messageView
	}{linksOf(page, messagesPerPage, total), messages})
}

// messageViews returns the messages of one page, newest first, beginning with index first.
func (o *outbox) messageViews(first int, zone *time.Location) (views []messageView, total int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	total = len(o.messages)
	for n := total - 1 - first; n >= 0 && len(views) < messagesPerPage; n-- {
		p := o.messages[n]
		view := messageView{Subject: p.subject, From: p.from, Count: len(p.to), At: time.UnixMilli(p.at).In(zone).Format(time.DateTime)}
		for i := range min(len(p.to), recipientsShown) {
			view.To = append(view.To, struct{ Address, Status string }{p.to[i], p.state(o.seed, i, now)})
		}
		view.More = view.Count - len(view.To)
		views = append(views, view)
	}
	return views, total
}
