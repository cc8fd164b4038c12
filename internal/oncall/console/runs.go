package console

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"errand/internal/oncall/access"
	"errand/internal/oncall/act"
	"errand/internal/oncall/index"
)

// redriveRun is a redrive that is under way, or has ended.
type redriveRun struct {
	ID    string
	By    string
	Why   string
	Began time.Time
	Items []act.Item
	work  func(context.Context) error

	stop func()

	mu      sync.Mutex
	results []act.Redriven
	ended   time.Time
	err     error
}

func (r *redriveRun) add(done act.Redriven) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.results = append(r.results, done)
}

type runPage struct {
	*redriveRun
	Results []act.Redriven
	Counts  map[string]int // by result
	Left    []act.Item
	Now     map[uint64]index.Row // what became of those published, by dead letter
	Became  []index.Count
	Ended   time.Time
	Problem string
	MayAct  bool
}

func (r *redriveRun) page() runPage {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := runPage{redriveRun: r, Results: slices.Clone(r.results), Counts: map[string]int{}, Ended: r.ended}
	if r.err != nil {
		p.Problem = hideIn(r.err.Error())
	}
	ended := map[uint64]bool{}
	for _, done := range r.results {
		ended[done.Sequence] = true
		p.Counts[string(done.Result)]++
	}
	p.Left = slices.DeleteFunc(slices.Clone(r.Items), func(i act.Item) bool { return ended[i.Sequence] })
	return p
}

// runs keeps redrives: those under way, and recent ones.
type runs struct {
	wg sync.WaitGroup

	mu  sync.Mutex
	ctx context.Context // ends with the console; nil while it does not run
	all []*redriveRun   // the newest last
}

// Bounds of runs: how many at once, and how many are kept. The audit keeps all.
const (
	maxRuns  = 4
	keptRuns = 20
)

// run allows redrives until ctx ends. Redrives under way then stop after their current request.
func (r *runs) run(ctx context.Context) {
	r.mu.Lock()
	r.ctx = ctx
	r.mu.Unlock()
	<-ctx.Done()
	r.mu.Lock()
	r.ctx = nil // no run starts any longer
	r.mu.Unlock()
	r.wg.Wait()
}

// start starts a run. It returns false if too many are under way.
func (r *runs) start(one *redriveRun) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	working := 0
	for _, run := range r.all {
		if run.page().Ended.IsZero() {
			working++
		}
	}
	if working >= maxRuns || r.ctx == nil {
		return false
	}
	r.all = append(r.all, one)
	if len(r.all) > keptRuns {
		r.all = slices.Delete(r.all, 0, len(r.all)-keptRuns)
	}
	ctx, stop := context.WithCancel(r.ctx)
	one.stop = stop
	r.wg.Go(func() {
		defer stop()
		err := one.work(ctx)
		one.mu.Lock()
		defer one.mu.Unlock()
		one.ended, one.err = time.Now(), err
	})
	return true
}

func (r *runs) list() (pages []runPage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, run := range slices.Backward(r.all) {
		pages = append(pages, run.page())
	}
	return pages
}

func (r *runs) of(q *http.Request) (*redriveRun, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, run := range r.all {
		if run.ID == q.PathValue("run") {
			return run, nil
		}
	}
	return nil, notFound("This console knows no such redrive; it may have been restarted since. The audit has every request's result.")
}

func (s *Server) redriveRun(r *http.Request, user access.User) (page, error) {
	run, err := s.runs.of(r)
	if err != nil {
		return page{}, err
	}
	p := run.page()
	p.MayAct, p.Now = user.May(access.Act), map[uint64]index.Row{}
	for _, done := range p.Results {
		rows, err := s.index.Request(r.Context(), done.RequestID)
		if err != nil {
			return page{}, err
		}
		for _, row := range rows {
			if row.Operation == done.Operation && done.Result == act.Done {
				p.Now[done.Sequence] = row
				p.Became = append(p.Became, index.Count{Kind: row.Kind, Count: 1})
			}
		}
	}
	p.Became = index.Sum(p.Became, func(k index.Kind) index.Kind { return index.Kind{State: k.State} })
	return page{Title: "Redrive", Nav: "/dead-letters", Name: "run", Data: p}, nil
}

// cancelRedrive stops a redrive after its current request.
func (s *Server) cancelRedrive(r *http.Request, _ access.User) (string, error) {
	run, err := s.runs.of(r)
	if err != nil {
		return "", err
	}
	run.stop()
	return "/redrives/" + run.ID, nil
}
