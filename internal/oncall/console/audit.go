package console

import (
	"cmp"
	"net/http"
	"strconv"
	"time"

	"errand/internal/oncall/access"
	"errand/internal/oncall/act"
)

type auditPage struct {
	Verb, Actor, Target, Since string

	Acts  []acts
	Older string // the address of a page with more of them
}

// acts are what a person did in one go, the newest first: many redrives do not push a pause out of sight.
type acts []act.Entry

// actsRead is how many acts a page reads, unless its address asks for more.
const (
	actsRead    = 100
	maxActsRead = 100 * actsRead
)

// inGroups groups acts that follow one another and differ in their target alone.
func inGroups(all []act.Entry) (groups []acts) {
	like := func(e act.Entry) [8]string {
		return [8]string{string(e.Verb), string(e.Result), e.Actor, e.Suspect, e.Via, e.Why, e.Plan, e.Message}
	}
	for i, e := range all {
		if i == 0 || like(e) != like(all[i-1]) {
			groups = append(groups, acts{})
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], e)
	}
	return groups
}

func (s *Server) audit(r *http.Request, _ access.User) (page, error) {
	q := r.URL.Query()
	p := auditPage{Verb: q.Get("verb"), Actor: q.Get("actor"), Target: q.Get("target"), Since: q.Get("since")}
	since, err := when(p.Since, time.Now())
	if err != nil {
		return page{}, err
	}
	limit, err := strconv.Atoi(cmp.Or(q.Get("read"), strconv.Itoa(actsRead)))
	if err != nil || limit < 1 || limit > maxActsRead {
		limit = actsRead
	}
	all, err := act.Acts(r.Context(), s.reader.Conn, act.Query{Verb: act.Verb(p.Verb), Actor: p.Actor, Target: p.Target, Since: since,
		Limit: limit})
	p.Acts = inGroups(all)
	if len(all) == limit && limit < maxActsRead {
		q.Set("read", strconv.Itoa(min(10*limit, maxActsRead)))
		p.Older = "/audit?" + q.Encode()
	}
	return page{Title: "Audit", Nav: "/audit", Name: "audit", Data: p}, err
}
