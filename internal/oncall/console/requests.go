package console

import (
	"cmp"
	"net/http"
	"net/url"
	"time"

	"errand/internal/oncall/access"
	"errand/internal/oncall/index"
	"errand/internal/oncall/inspect"
	"errand/internal/programs"
	"errand/pkg/messages"
)

type requestList struct {
	listPage
	Asked asked
}

type listPage struct {
	Rows  []index.Row
	Next  string // path of the page after this one
	First string // path of the first one, if this is not it
}

// asked is a filter as the form has it.
type asked struct{ url.Values }

type span struct{ Value, Text string }

var spans = []span{{"1h", "the last hour"}, {"24h", "the last 24 hours"}, {"168h", "the last 7 days"}}

const pageRows = 50

func (a asked) filter(now time.Time) (f index.Filter, err error) {
	f = index.Filter{Limit: pageRows, Operations: some[messages.Operation](a.Get("operation")), States: some[messages.State](a.Get("state")),
		Reasons: some[messages.Reason](a.Get("reason"))}
	if a.Get("operation") != "" {
		_, err = operationNamed(a.Get("operation"))
	}
	var wrongSince, wrongUntil error
	f.Since, wrongSince = when(a.Get("since"), now)
	f.Until, wrongUntil = when(a.Get("until"), now)
	return f, cmp.Or(err, wrongSince, wrongUntil)
}

// some is what a field of a form asks for; nothing means anything.
func some[T ~string](field string) []T {
	if field == "" {
		return nil
	}
	return []T{T(field)}
}

// when reads a time, or how long ago it was.
func when(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	var at programs.When
	if at.UnmarshalText([]byte(text)) != nil {
		return time.Time{}, wrong("A time must be like 2026-01-31T12:00:00Z, or 24h for 24 hours ago.")
	}
	return at.From(now), nil
}

func (s *Server) requests(r *http.Request, _ access.User) (page, error) {
	list := requestList{Asked: asked{r.URL.Query()}}
	f, err := list.Asked.filter(time.Now())
	switch {
	case err != nil:
		return page{}, err
	case list.Asked.Get("state") == string(inspect.Queued):
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
	q := inspect.Query{Operations: f.Operations, States: f.States, Reasons: f.Reasons, Since: f.Since, Limit: f.Limit}
	found, err := s.reader.List(r.Context(), q, time.Now())
	for _, row := range found {
		if !f.Until.IsZero() && !row.Time.Before(f.Until) {
			continue
		}
		rows = append(rows, index.Row{Kind: index.Kind{Operation: row.Operation, State: row.State, Reason: row.Reason},
			RequestID: row.RequestID, At: row.Time.Time, Began: row.Time.Time})
	}
	return rows, err
}

// deadList shows dead letters: how many of each kind, and a page of them.
type deadList struct {
	listPage
	Groups []index.Count // by operation, class and reason, the largest first
	Total  int           // that need somebody
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
	list := deadList{MayAct: user.May(access.Act), Runs: s.runs.list()}
	list.Groups = index.Sum(counts, func(k index.Kind) index.Kind {
		if !k.Needed() {
			return index.Kind{}
		}
		return index.Kind{Operation: k.Operation, Class: k.Class, Reason: k.Reason}
	})
	list.Total, list.Others = needed(counts)
	f, err := deadFilter(q)
	if err != nil {
		return page{}, err
	}
	list.Chosen = !f.Needed
	list.listPage, err = s.listed(r, f)
	return page{Title: "Dead letters", Nav: "/dead-letters", Name: "dead", Data: list}, err
}

// needed is how many dead letters need somebody, and how many do not.
func needed(counts []index.Count) (n, others int) {
	for _, c := range counts {
		switch {
		case c.Needed():
			n += c.Count
		case c.Dead:
			others += c.Count
		}
	}
	return n, others
}

func deadFilter(q url.Values) (index.Filter, error) {
	f, err := asked{q}.filter(time.Now())
	f.Dead, f.Needed, f.Classes = true, q.Get("class")+q.Get("all") == "", some[inspect.Class](q.Get("class"))
	return f, err
}
