package console

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"errand/internal/access"
	"errand/internal/act"
	"errand/internal/inspect"
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

// redriveRun is a redrive that is under way, or has ended.
type redriveRun struct {
	ID    string
	By    string
	Why   string
	Began time.Time
	Items []act.Item
	work  func(context.Context) error

	mu      sync.Mutex
	stop    func()
	results []act.Redriven
	ended   time.Time
	err     error
}

func (r *redriveRun) add(done act.Redriven) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.results = append(r.results, done)
}

// runPage is how far a redrive is.
type runPage struct {
	*redriveRun
	Results                []act.Redriven
	Left                   []act.Item
	Done, NotDone, Unknown int
	Ended                  time.Time
	Problem                string
	MayAct                 bool
}

func (r *redriveRun) page() runPage {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := runPage{redriveRun: r, Results: slices.Clone(r.results), Ended: r.ended}
	if r.err != nil {
		p.Problem = hideIn(r.err.Error())
	}
	ended := map[uint64]bool{}
	for _, done := range r.results {
		ended[done.Sequence] = true
		switch done.Result {
		case act.Done:
			p.Done++
		case act.NotDone:
			p.NotDone++
		default:
			p.Unknown++
		}
	}
	p.Left = slices.DeleteFunc(slices.Clone(r.Items), func(i act.Item) bool { return ended[i.Sequence] })
	return p
}

// runs are redrives: those under way, and the last ones.
type runs struct {
	begin chan *redriveRun

	mu  sync.Mutex
	all []*redriveRun // the newest last
}

func newRuns() *runs { return &runs{begin: make(chan *redriveRun, maxRuns)} }

// Bounds of runs: how many at once, and of how many it is kept how they went. The audit
// keeps all.
const (
	maxRuns  = 4
	keptRuns = 20
)

// run does what is begun until ctx ends; what is under way then stops after the request that
// it is at.
func (r *runs) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case one := <-r.begin:
			wg.Go(func() {
				ctx, stop := context.WithCancel(ctx)
				defer stop()
				one.mu.Lock()
				one.stop = stop
				one.mu.Unlock()
				err := one.work(ctx)
				one.mu.Lock()
				defer one.mu.Unlock()
				one.ended, one.err = time.Now(), err
			})
		}
	}
}

// start has a run begin; false: too many are under way.
func (r *runs) start(one *redriveRun) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	working := 0
	for _, run := range r.all {
		if run.page().Ended.IsZero() {
			working++
		}
	}
	if working >= maxRuns {
		return false
	}
	r.all = append(r.all, one)
	if len(r.all) > keptRuns {
		r.all = slices.Delete(r.all, 0, len(r.all)-keptRuns)
	}
	r.begin <- one // there is room: fewer are under way
	return true
}

// list gives the runs, the newest first.
func (r *runs) list() (pages []runPage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, run := range slices.Backward(r.all) {
		pages = append(pages, run.page())
	}
	return pages
}

func (r *runs) get(id string) *redriveRun {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.IndexFunc(r.all, func(run *redriveRun) bool { return run.ID == id }); i >= 0 {
		return r.all[i]
	}
	return nil
}

var errNoRun = notFound("This console knows no such redrive; it may have been started again since. What was done is in the audit, request by request.")

func (s *Server) redriveRun(r *http.Request, user access.User) (page, error) {
	run := s.runs.get(r.PathValue("run"))
	if run == nil {
		return page{}, errNoRun
	}
	p := run.page()
	p.MayAct = user.May(access.Act)
	return page{Title: "Redrive", Nav: "/dead-letters", Name: "run", Data: p}, nil
}

func (s *Server) stampOfRun(r *http.Request) string {
	run := s.runs.get(r.PathValue("run"))
	if run == nil {
		return ""
	}
	p := run.page()
	return fmt.Sprint(len(p.Results), p.Ended)
}

// cancelRedrive stops a redrive after the request that it is at.
func (s *Server) cancelRedrive(r *http.Request, _ access.User) (string, error) {
	run := s.runs.get(r.PathValue("run"))
	if run == nil {
		return "", errNoRun
	}
	run.mu.Lock()
	defer run.mu.Unlock()
	run.stop()
	return "/redrives/" + run.ID, nil
}
