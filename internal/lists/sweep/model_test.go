package sweep

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"errand/internal/sandbox/devkit/inshort"
)

var modelSeeds = flag.Uint64("sweep.seeds", 5, "lists of each order that are drawn at random")

// The list grows, shifts and changes while it is read, rows come late and are removed, pages have any length or none,
// totals lie, sweepers crash at any point, sometimes there are two of them, days pass without any, events are kept for longer or less
// long, and others publish rows that they have looked up: each state is published once, and none is lost.
func TestEachStateOfEachRowIsPublishedOnce(t *testing.T) {
	seeds := inshort.Choose(t, *modelSeeds, 1)
	for name, o := range orders {
		for seed := range seeds {
			t.Run(fmt.Sprintf("%s %d", name, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { model(t, o, seed) })
			})
		}
	}
}

func model(t *testing.T, o Order, seed uint64) {
	random, ages := rand.New(rand.NewPCG(uint64(o), seed)), rand.New(rand.NewPCG(uint64(o), seed+1<<32))
	l := &list{order: o, random: rand.New(rand.NewPCG(seed, uint64(o))), latency: 5 * time.Millisecond}
	s := &store{told: map[ID]int{}}
	if random.IntN(3) == 0 {
		s.age = []time.Duration{48 * time.Hour, 6 * 24 * time.Hour}[random.IntN(2)]
	}
	l.add(random.IntN(300))
	limit := []int{11, 20, 50}[random.IntN(3)]
	if s.age > 0 { // lives are short: each must get around the list
		limit = 50
	}
	misbehave(l, limit)
	watched := time.Time{}
	for life := range 7 {
		began := time.Now()
		var sweepers sync.WaitGroup
		ctx, stop := context.WithTimeout(t.Context(), time.Duration(1+random.IntN(120))*time.Second)
		for range 1 + random.IntN(2) {
			d := &sink{store: s, stop: stop}
			if life%3 == 1 {
				left := random.IntN(150)
				d.crash = func() bool { left--; return left < 0 }
			}
			w := l.sweeper(d, limit)
			if random.IntN(2) == 0 {
				w.Recent, w.Pace = time.Hour, 5
				sweepers.Go(func() { lookUp(ctx, l, w) })
			}
			sweepers.Go(func() {
				w.Run(ctx)
			})
		}
		for ctx.Err() == nil {
			wait := time.Duration(random.IntN(20_000)) * time.Millisecond
			l.change(func() {
				l.add(random.IntN(20) * random.IntN(2))
				l.settle(random.IntN(10))
			})
			time.Sleep(wait)
		}
		stop()
		sweepers.Wait()
		time.Sleep([]time.Duration{0, time.Minute, time.Hour, 50 * time.Hour}[random.IntN(4)])
		shortest := s.age
		if s.expire(); len(s.marks) > 0 && s.age > 0 && ages.IntN(3) == 0 {
			s.age = []time.Duration{48 * time.Hour, 6 * 24 * time.Hour, 30 * 24 * time.Hour}[ages.IntN(3)]
			shortest = min(shortest, s.age)
		}
		if s.age > 0 && time.Since(began) > shortest-2*time.Hour { // what comes and goes unseen may be lost
			watched = time.Now()
		}
	}
	l.busy = nil // half an hour without changes, to publish what is left
	d := &sink{store: s}
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Minute)
	defer stop()
	l.sweeper(d, limit).Run(ctx)
	kept, _ := d.Kept(ctx) // what is older, and comes late, counts as published
	checkTold(t, l, s, later(watched, kept))
	if t.Failed() {
		t.Logf("limit %d, age %v, fixed %t of %d, empty pages %t, total %d of %d", limit, s.age, l.fixed, l.maxRows, l.empty != nil,
			l.total(len(l.rows)), len(l.rows))
	}
}

// lookUp publishes a few rows of the list again and again, as somebody who looks them up.
func lookUp(ctx context.Context, l *list, s *Sweeper[int]) {
	for ctx.Err() == nil {
		var found []Row[int]
		l.mu.Lock()
		for range min(3, len(l.rows)) {
			found = append(found, l.rows[l.random.IntN(len(l.rows))].row())
		}
		l.mu.Unlock()
		_ = s.Publish(ctx, found) // what was not stored is found otherwise
		time.Sleep(700 * time.Millisecond)
	}
}

// misbehave makes the list do, with some of its pages, what the document does not exclude.
func misbehave(l *list, limit int) {
	wrong := []int{0, 0, -7, 90}[l.random.IntN(4)]
	noTotals := l.random.IntN(4) == 0
	cached, until := 0, time.Time{}
	caches := l.random.IntN(4) == 0
	l.total = func(n int) int {
		switch {
		case noTotals:
			return 0
		case caches && time.Now().Before(until):
			return cached
		}
		cached, until = max(0, n+wrong), time.Now().Add(10*time.Minute)
		return cached
	}
	if l.random.IntN(3) == 0 {
		l.empty = func() bool { return l.random.IntN(40) == 0 }
	}
	l.fixed = l.random.IntN(4) == 0
	if l.fixed {
		l.maxRows = limit + l.random.IntN(20) - 5
	}
	l.busy = func(l *list) {
		switch l.random.IntN(200) {
		case 0:
			l.add(l.random.IntN(5 * limit))
		case 1, 2, 3:
			l.add(1)
		case 4, 5, 6:
			l.settle(3)
		case 7, 8, 9, 10:
			l.remove(1)
		case 11:
			l.remove(l.random.IntN(2 * limit))
		case 12, 13, 14:
			l.late(time.Duration(l.random.IntN(90)) * time.Minute)
		case 15, 16, 17: // the number of rows stays the same
			l.remove(1)
			l.add(1)
		case 18:
			if !l.fixed {
				l.maxRows = []int{0, limit - 1, limit/2 + 6}[l.random.IntN(3)]
			}
		}
	}
}
