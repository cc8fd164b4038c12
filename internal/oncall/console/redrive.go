package console

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"errand/internal/oncall/access"
	"errand/internal/oncall/act"
	"errand/internal/oncall/inspect"
)

// maxPlan is the maximum number of dead letters in one redrive.
const maxPlan = 500

// Bounds of how many run per second.
const (
	minRate = 0.001
	maxRate = 1000
)

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
	return page{Title: "Redrive", Nav: "/dead-letters", Name: "redrive", Data: p}, nil
}

// lettersAsked returns the names of the dead letters that a query chooses, by request or by a filter, up to maxPlan.
func (s *Server) lettersAsked(ctx context.Context, q url.Values) (names []string, cut bool, err error) {
	if id := q.Get("request"); id != "" {
		rows, err := s.index.Request(ctx, id)
		for _, row := range rows {
			if row.DeadLetter > 0 {
				names = append(names, inspect.Name(row.DeadLetter))
			}
		}
		if len(names) == 0 { // not indexed yet
			names = []string{id}
		}
		return names, false, err
	}
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
	if len(names) == 0 {
		return nil, notFound("These dead letters no longer exist.")
	}
	letters, err := requests.Letters(ctx, names, inspect.Query{})
	switch {
	case errors.Is(err, inspect.ErrNoDeadLetter):
		return nil, notFound("Nothing was done: one of these dead letters no longer exists. Select again.")
	case errors.Is(err, inspect.ErrAmbiguous):
		return nil, wrong("Nothing was done: one of these numbers names two dead letters. Select again.")
	case err != nil:
		return nil, err
	}
	return requests.Plan(ctx, letters)
}

func (s *Server) startRedrive(r *http.Request, p act.Person) (string, error) {
	why := strings.TrimSpace(r.FormValue("why"))
	if why == "" {
		return "", act.ErrNoReason
	}
	rate, err := strconv.ParseFloat(cmp.Or(r.FormValue("rate"), "0"), 64)
	if err != nil || rate != 0 && !(rate >= minRate && rate <= maxRate) {
		return "", wrong("The rate must be 0.001 to 1000 requests per second; 0.001 is about one in a quarter of an hour.")
	}
	names := r.Form["item"]
	if len(names) > maxPlan {
		return "", wrong(fmt.Sprintf("Select at most %d dead letters.", maxPlan))
	}
	items, err := planOf(r.Context(), p.Requests(), names)
	if err != nil {
		return "", err
	}
	run := &redriveRun{ID: rand.Text()[:10], By: p.Name, Why: why, Began: time.Now(), Items: items}
	consent := act.Consent{Why: why, Accept: r.Form["accept"], Force: r.Form["force"], Rate: rate}
	run.work = func(ctx context.Context) error { return p.Requests().Redrive(ctx, items, consent, run.add) }
	if !s.runs.start(run) {
		return "", &mistake{http.StatusServiceUnavailable, "Too many redrives", "Several redrives are under way. Wait until one ends."}
	}
	return "/redrives/" + run.ID, nil
}
