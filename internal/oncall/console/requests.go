package console

import (
	"net/http"
	"net/url"
	"time"

	"errand/internal/oncall/access"
	"errand/internal/oncall/index"
	"errand/internal/oncall/inspect"
	"errand/pkg/messages"
)

type requestList struct {
	listPage
	Asked  asked
	Queued bool // they are read from the queues
}

type listPage struct {
	Rows  []index.Row
	Next  string // path of the page after this one
	First string // path of the first one, if this is not it
}

// asked is a filter as the form has it.
type asked struct {
	Operation, State, Reason, Since, Until string

	Operations []messages.Operation
	States     []messages.State
	Reasons    []messages.Reason
	Spans      []span
}

type span struct{ Value, Text string }

var spans = []span{{"1h", "the last hour"}, {"24h", "the last 24 hours"}, {"168h", "the last 7 days"}}

func askedOf(q url.Values) asked {
	return asked{Operation: q.Get("operation"), State: q.Get("state"), Reason: q.Get("reason"), Since: q.Get("since"), Until: q.Get("until"),
		Operations: inspect.Operations, States: inspect.States(nil), Reasons: messages.Reasons, Spans: spans}
}

const pageRows = 50

func (a asked) filter(now time.Time) (f index.Filter, err error) {
	f.Limit = pageRows
	if a.Operation != "" {
		op, err := operationNamed(a.Operation)
		if err != nil {
			return f, err
		}
		f.Operations = []messages.Operation{op}
	}
	if a.State != "" {
		f.States = []messages.State{messages.State(a.State)}
	}
	if a.Reason != "" {
		f.Reasons = []messages.Reason{messages.Reason(a.Reason)}
	}
	if f.Since, err = when(a.Since, now); err != nil {
		return f, err
	}
	f.Until, err = when(a.Until, now)
	return f, err
}

// when reads a time, or how long ago it was.
func when(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	ago, err := time.ParseDuration(text)
	if err != nil || ago <= 0 {
		return time.Time{}, wrong("A time must be like 2026-01-31T12:00:00Z, or 24h for 24 hours ago.")
	}
	return now.Add(-ago), nil
}

func (a asked) Filtered() bool { return a.Operation+a.State+a.Reason+a.Since+a.Until != "" }

func (s *Server) requests(r *http.Request, _ access.User) (page, error) {
	list := requestList{Asked: askedOf(r.URL.Query())}
	f, err := list.Asked.filter(time.Now())
	switch {
	case err != nil:
		return page{}, err
	case list.Asked.State == string(inspect.Queued):
		list.Queued = true
		list.Rows, err = s.queuedRows(r, f)
	default:
		list.listPage, err = s.listed(r, f)
	}
	return page{Title: "Requests", Nav: "/requests", Name: "requests", Data: list}, err
}

func (s *Server) listed(r *http.Request, f index.Filter) (p listPage, err error) {
	q := r.URL.Query()
	f.Before = index.Cursor(q.Get("before"))
	found, err := s.index.Requests(r.Context(), f)
	p.Rows = found.Rows
	if f.Before != "" {
		q.Del("before")
		p.First = r.URL.Path + "?" + q.Encode()
	}
	if found.Next != "" {
		q.Set("before", string(found.Next))
		p.Next = r.URL.Path + "?" + q.Encode()
	}
	return p, err
}

// queuedRows returns requests that no worker has taken: they have no event and are not in the index.
func (s *Server) queuedRows(r *http.Request, f index.Filter) (rows []index.Row, err error) {
	q := inspect.Query{Operations: f.Operations, States: f.States, Since: f.Since, Limit: f.Limit}
	found, err := s.reader.List(r.Context(), q, time.Now())
	for _, row := range found {
		rows = append(rows, index.Row{Kind: index.Kind{Operation: row.Operation, State: row.State, Reason: row.Reason},
			RequestID: row.RequestID, At: row.Time.Time, Began: row.Time.Time})
	}
	return rows, err
}

// deadList shows dead letters: how many of each kind, and a page of them.
type deadList struct {
	listPage
	Groups []index.Count // by operation, class and reason, the largest first
	Asked  asked
	Class  inspect.Class
	Total  int // that need somebody
	Others int
	Chosen bool // the rows are filtered
	MayAct bool
	Runs   []runPage // recent redrives
}

func (s *Server) deadLetters(r *http.Request, user access.User) (page, error) {
	counts, err := s.index.Counts(r.Context())
	if err != nil {
		return page{}, err
	}
	q := r.URL.Query()
	list := deadList{Asked: askedOf(q), Class: inspect.Class(q.Get("class")),
		MayAct: user.May(access.Act), Runs: s.runs.list()}
	list.Groups = index.Sum(counts, func(k index.Kind) index.Kind {
		if !k.Needed() {
			return index.Kind{}
		}
		return index.Kind{Operation: k.Operation, Class: k.Class, Reason: k.Reason}
	})
	for _, g := range list.Groups {
		list.Total += g.Count
	}
	for _, c := range counts {
		if c.Dead && !c.Needed() {
			list.Others += c.Count
		}
	}
	f, err := deadFilter(q)
	if err != nil {
		return page{}, err
	}
	list.Chosen = !f.Needed
	list.listPage, err = s.listed(r, f)
	return page{Title: "Dead letters", Nav: "/dead-letters", Name: "dead", Data: list}, err
}

func deadFilter(q url.Values) (index.Filter, error) {
	f, err := askedOf(q).filter(time.Now())
	f.Dead, f.Needed = true, q.Get("class") == "" && q.Get("all") == ""
	if class := inspect.Class(q.Get("class")); class != "" {
		f.Classes = []inspect.Class{class}
	}
	return f, err
}
