package poll

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var modelSeeds = flag.Uint64("poll.seeds", 3, "logs of each order that are drawn at random")

// The log grows, shifts and changes while it is read, rows come late and go, pages are
// of any size and totals wrong or missing, pollers die in the middle of whatever they
// do, now and then there are two of them, and days pass without any.
func TestEachStateOfEachRowIsToldOnce(t *testing.T) {
	for _, o := range []order{newestFirst, oldestFirst, unordered} {
		for seed := range *modelSeeds {
			t.Run(fmt.Sprintf("%s %d", o, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { model(t, o, seed, 0) })
			})
		}
	}
}

// model drives pollers over a log that begins with so many rows of a month.
func model(t *testing.T, o order, seed uint64, old int) {
	random := rand.New(rand.NewPCG(uint64(o), seed))
	u := &upstream{order: o, random: random, latency: 5 * time.Millisecond}
	s := &store{}
	u.grown(old, 30*24*time.Hour/time.Duration(max(old, 1)))
	u.add(random.IntN(300))
	time.Sleep(time.Duration(random.IntN(100)) * time.Hour)
	limit := []int{11, 20, 50}[random.IntN(3)]
	misbehave(u, limit)
	for life := range 7 {
		var pollers sync.WaitGroup
		ctx, stop := context.WithTimeout(t.Context(), time.Duration(1+random.IntN(40))*time.Second)
		for range 1 + random.IntN(2) {
			d := &desk{store: s, stop: stop}
			if life%3 == 1 {
				left := rand.IntN(150)
				d.crash = func() bool { left--; return left < 0 }
			}
			pollers.Go(func() {
				if err := u.poller(t, d, limit).Run(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		for ctx.Err() == nil {
			u.mu.Lock()
			wait := time.Duration(random.IntN(20_000)) * time.Millisecond
			u.add(random.IntN(20) * random.IntN(2))
			u.settle(random.IntN(10), 2*time.Minute)
			u.mu.Unlock()
			time.Sleep(wait)
		}
		stop()
		pollers.Wait()
		time.Sleep([]time.Duration{0, time.Minute, time.Hour, 50 * time.Hour}[random.IntN(4)])
	}
	u.busy = nil // a quiet minute to see what is left
	d := &desk{store: s}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	if err := u.poller(t, d, limit).Run(ctx); err != nil {
		t.Fatal(err)
	}
	u.complete(t, s)
	if u.twice > 0 {
		t.Errorf("%d reads began while another one was under way", u.twice)
	}
}

// misbehave has the upstream do, with some of the pages that it gives, what the
// document does not exclude.
func misbehave(u *upstream, limit int) {
	u.wrong, u.pages = []int{0, 0, -7, 90}[u.random.IntN(4)], u.random.IntN(3)-1
	u.silent = u.random.IntN(4) == 0
	u.busy = func(u *upstream) {
		switch u.random.IntN(200) {
		case 0:
			u.add(u.random.IntN(5 * limit))
		case 1, 2, 3:
			u.add(1)
		case 4, 5, 6:
			u.settle(3, 2*time.Minute)
		case 7, 8, 9, 10:
			u.remove(1)
		case 11:
			u.remove(u.random.IntN(2 * limit))
		case 12, 13, 14:
			u.late()
		case 15, 16, 17: // the number of rows stays the same
			u.remove(1)
			u.add(1)
		case 18:
			u.most = []int{0, limit - 1, limit/2 + 6}[u.random.IntN(3)]
		}
	}
}
