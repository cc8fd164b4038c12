package console

import (
	"net/http"
	"time"

	"errand/internal/oncall/access"
	"errand/internal/oncall/act"
)

type auditPage struct {
	Verb, Actor, Target, Since string

	Verbs []act.Verb
	Spans []span
	Acts  []act.Entry
}

const actsShown = 100

func (s *Server) audit(r *http.Request, _ access.User) (page, error) {
	q := r.URL.Query()
	p := auditPage{Verb: q.Get("verb"), Actor: q.Get("actor"), Target: q.Get("target"), Since: q.Get("since"), Verbs: act.Verbs, Spans: spans}
	since, err := when(p.Since, time.Now())
	if err != nil {
		return page{}, err
	}
	p.Acts, err = act.Acts(r.Context(), s.reader.Conn, act.Query{Verb: act.Verb(p.Verb), Actor: p.Actor, Target: p.Target, Since: since,
		Limit: actsShown})
	return page{Title: "Audit", Nav: "/audit", Name: "audit", Data: p}, err
}
