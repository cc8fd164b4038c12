package console

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"errand/internal/oncall/access"
	"errand/internal/oncall/act"
	"errand/internal/oncall/inspect"
)

// maxPlan is the maximum number of dead letters in one redrive.
const maxPlan = 500

type planPage struct {
	Items []act.Item
	Runs  int // how many run without a tick
	Asks  int // how many may be done twice
	Cut   bool
}

// redrivePlan shows what running dead letters again would do. It changes nothing.
func (s *Server) redrivePlan(r *http.Request, user access.User) (page, error) {
	names, cut, err := s.lettersAsked(r.Context(), r.URL.Query())
	if err != nil {
		return page{}, err
	}
	person, err := s.person(user)
	if err != nil {
		return page{}, err
	}
	items, err := planOf(r.Context(), person.Requests(), names)
	if err != nil {
		return page{}, err
	}
	p := planPage{Items: items, Cut: cut}
	for _, item := range items {
		switch item.Class {
		case inspect.Safe, inspect.Reopened:
			p.Runs++
		case inspect.Twice:
			p.Asks++
			if len(item.Batches) > 0 { // batches that were not accepted are sent anyway
				p.Runs++
			}
		}
	}
	return page{Title: "Redrive or discard", Nav: "/dead-letters", Name: "redrive", Data: p}, nil
}

// lettersAsked returns the names of the dead letters that a query chooses, one by one or by a filter, up to maxPlan.
func (s *Server) lettersAsked(ctx context.Context, q url.Values) (names []string, cut bool, err error) {
	if chosen := q["letter"]; len(chosen) > 0 {
		for _, sequence := range chosen[:min(len(chosen), maxPlan)] {
			names = append(names, inspect.BySequence+sequence)
		}
		return names, len(chosen) > maxPlan, nil
	}
	if q.Get("operation") == "" {
		return nil, false, wrong("Select dead letters first.")
	}
	f, err := deadFilter(q)
	if err != nil {
		return nil, false, err
	}
	f.Limit = maxPlan
	found, err := s.index.Requests(ctx, f)
	for _, row := range found.Rows {
		names = append(names, inspect.Name(row.DeadLetter))
	}
	return names, found.Next != "", err
}

func planOf(ctx context.Context, requests act.Requests, names []string) ([]act.Item, error) {
	var letters []inspect.DeadLetter
	for _, name := range names {
		found, err := requests.Letters(ctx, []string{name}, inspect.Query{})
		if err != nil && !errors.Is(err, inspect.ErrNoDeadLetter) { // what was removed is not run, and does not keep the others
			return nil, err
		}
		letters = append(letters, found...)
	}
	if len(letters) == 0 {
		return nil, notFound("These dead letters no longer exist.")
	}
	return requests.Plan(ctx, letters)
}

// discard records that nothing is to be done about dead letters.
func (s *Server) discard(r *http.Request, p act.Person) (string, error) {
	items, err := planAsked(r, p)
	if err == nil {
		err = p.Discard(r.Context(), items, r.FormValue("why"))
	}
	return "/dead-letters", err
}

// planAsked returns the items of a plan that a form has.
func planAsked(r *http.Request, p act.Person) ([]act.Item, error) {
	if strings.TrimSpace(r.FormValue("why")) == "" {
		return nil, act.ErrNoReason
	}
	if names := r.Form["item"]; len(names) <= maxPlan {
		return planOf(r.Context(), p.Requests(), names)
	}
	return nil, wrong(fmt.Sprintf("Select at most %d dead letters.", maxPlan))
}

func (s *Server) startRedrive(r *http.Request, p act.Person) (string, error) {
	why := r.FormValue("why")
	items, err := planAsked(r, p)
	if err != nil {
		return "", err
	}
	run := &redriveRun{ID: rand.Text()[:10], By: p.Name, Why: why, Began: time.Now(), Items: items}
	consent := act.Consent{Why: why, Accept: r.Form["accept"], Force: r.Form["force"]}
	run.work = func(ctx context.Context) error { return p.Requests().Redrive(ctx, items, consent, run.add) }
	if !s.runs.start(run) {
		return "", refusal(http.StatusServiceUnavailable, "Too many redrives", "Several redrives are under way. Wait until one ends.")
	}
	return "/redrives/" + run.ID, nil
}
