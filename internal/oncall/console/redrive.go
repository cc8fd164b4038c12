package console

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"errand/internal/oncall/access"
	"errand/internal/oncall/act"
	"errand/internal/oncall/inspect"
)

// maxPlan is how many dead letters are redriven at once.
const maxPlan = 500

// Bounds of how many are redriven in a second.
const (
	minRate = 0.001
	maxRate = 1000
)

// planPage is what is known of dead letters before anything is done.
type planPage struct {
	Items []act.Item
	Runs  int // how many run without a word more
	Asks  int // how many may be done twice
	Cut   bool
}

// redrivePlan shows what it would mean to run dead letters again. It changes nothing.
func (s *Server) redrivePlan(r *http.Request, user access.User) (page, error) {
	if !user.May(access.Act) {
		return page{}, forbidden(user)
	}
	names, cut, err := s.lettersAsked(r.Context(), r.URL.Query())
	if err != nil {
		return page{}, err
	}
	items, err := s.planOf(r.Context(), user, names)
	if err != nil {
		return page{}, err
	}
	p := planPage{Items: items, Cut: cut}
	for _, item := range items {
		switch item.Class {
		case act.Safe, act.Reopened:
			p.Runs++
		case act.Twice:
			p.Asks++
			if len(item.Batches) > 0 { // those that were not accepted are sent in any case
				p.Runs++
			}
		}
	}
	return page{Title: "Redrive", Nav: "/dead-letters", Name: "redrive", Data: p}, nil
}

// lettersAsked are the dead letters that a query names, by request or by what they have in
// common: their sequences. They are cut to what is redriven at once.
func (s *Server) lettersAsked(ctx context.Context, q url.Values) (names []string, cut bool, err error) {
	if id := q.Get("request"); id != "" {
		rows, err := s.index.Request(ctx, id)
		for _, row := range rows {
			if row.DeadLetter > 0 {
				names = append(names, bySequence(row.DeadLetter))
			}
		}
		if len(names) == 0 { // the index does not have it yet
			names = []string{id}
		}
		return names, false, err
	}
	if chosen := q["letter"]; len(chosen) > 0 {
		for _, letter := range chosen[:min(len(chosen), maxPlan)] {
			op, id, _ := strings.Cut(letter, "/")
			rows, err := s.index.Request(ctx, id)
			if err != nil {
				return nil, false, err
			}
			for _, row := range rows {
				if string(row.Operation) == op && row.DeadLetter > 0 {
					names = append(names, bySequence(row.DeadLetter))
				}
			}
		}
		return names, len(chosen) > maxPlan, nil
	}
	if q.Get("operation") == "" {
		return nil, false, wrong("Choose dead letters first.")
	}
	f, err := deadFilter(q)
	if err != nil {
		return nil, false, err
	}
	f.Limit = maxPlan
	found, err := s.index.Requests(ctx, f)
	for _, row := range found.Rows {
		names = append(names, bySequence(row.DeadLetter))
	}
	return names, found.Next != "", err
}

// bySequence is a dead letter's name: a bare number may be the id of another one's request.
func bySequence(n uint64) string { return inspect.BySequence + strconv.FormatUint(n, 10) }

// planOf says of dead letters what is known of each.
func (s *Server) planOf(ctx context.Context, user access.User, names []string) ([]act.Item, error) {
	if len(names) == 0 {
		return nil, notFound("There is no such dead letter any more.")
	}
	p, err := s.person(user)
	if err != nil {
		return nil, err
	}
	letters, err := p.Requests().Letters(ctx, names, inspect.Query{}, time.Now())
	switch {
	case errors.Is(err, inspect.ErrNoDeadLetter):
		return nil, notFound("One of these dead letters is not there any more, and nothing was done. Choose again.")
	case errors.Is(err, inspect.ErrAmbiguous):
		return nil, wrong("One of these numbers names two dead letters, and nothing was done. Choose again.")
	case err != nil:
		return nil, err
	}
	return p.Requests().Plan(ctx, letters)
}

// startRedrive begins to run dead letters again as somebody has consented to.
func (s *Server) startRedrive(r *http.Request, user access.User) (string, error) {
	why := strings.TrimSpace(r.FormValue("why"))
	if why == "" {
		return "", refusedAct(act.ErrNoReason)
	}
	rate, err := strconv.ParseFloat(cmp.Or(r.FormValue("rate"), "0"), 64)
	if err != nil || rate != 0 && !(rate >= minRate && rate <= maxRate) {
		return "", wrong("The rate is a number of requests a second, 1000 at most; 0.001 is one in a quarter of an hour.")
	}
	names := r.Form["item"]
	if len(names) > maxPlan {
		return "", wrong("That is more than is redriven at once.")
	}
	items, err := s.planOf(r.Context(), user, names)
	if err != nil {
		return "", err
	}
	p, err := s.person(user)
	if err != nil {
		return "", err
	}
	run := &redriveRun{ID: rand.Text()[:10], By: user.Name, Why: why, Began: time.Now(), Items: items, stop: func() {}}
	consent := act.Consent{Why: why, Accept: r.Form["accept"], Force: r.Form["force"], Rate: rate}
	run.work = func(ctx context.Context) error { return p.Requests().Redrive(ctx, items, consent, run.add) }
	if !s.runs.start(run) {
		return "", &mistake{http.StatusServiceUnavailable, "Too much at once", "Several redrives are under way. Wait until one has ended."}
	}
	return "/redrives/" + run.ID, nil
}
