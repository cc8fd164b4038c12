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

// seeds is how many logs of each order there are; one is enough in -short.
func seeds() uint64 {
	if testing.Short() {
		return 1
	}
	return *modelSeeds
}

// The log grows, shifts and changes while it is read, rows are added late and removed,
// pages have any size, totals are wrong or missing, pollers crash at any point, sometimes
// there are two of them, and days pass without any.
func TestEachStateOfEachRowIsToldOnce(t *testing.T) {
	for _, o := range []order{newestFirst, oldestFirst, unordered} {
		for seed := range seeds() {
			t.Run(fmt.Sprintf("%s %d", o, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { model(t, o, seed, 0) })
			})
		}
	}
}

// model runs pollers over a log that begins with this many rows of the last month.
func model(t *testing.T, o order, seed uint64, old int) {
	random := rand.New(rand.NewPCG(uint64(o), seed))
	u := &upstream{order: o, random: random, latency: 5 * time.Millisecond}
	s := &store{}
	u.prepend(old, 30*24*time.Hour/time.Duration(max(old, 1)))
	u.add(random.IntN(300))
	time.Sleep(time.Duration(random.IntN(100)) * time.Hour)
	limit := []int{11, 20, 50}[random.IntN(3)]
	misbehave(u, limit)
	for life := range 7 {
		var pollers sync.WaitGroup
		ctx, stop := context.WithTimeout(t.Context(), time.Duration(1+random.IntN(40))*time.Second)
		for range 1 + random.IntN(2) {
			d := &sink{store: s, stop: stop}
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
	u.busy = nil // a minute without changes, to publish what is left
	d := &sink{store: s}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	if err := u.poller(t, d, limit).Run(ctx); err != nil {
		t.Fatal(err)
	}
	u.checkComplete(t, s)
	if u.overlapping > 0 {
		t.Errorf("%d reads began while another one was under way", u.overlapping)
	}
}

// misbehave makes the upstream do, with some of its pages, what the document does not
// exclude.
func misbehave(u *upstream, limit int) {
	u.wrong, u.pages = []int{0, 0, -7, 90}[u.random.IntN(4)], u.random.IntN(3)-1
	u.noTotals = u.random.IntN(4) == 0
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
			u.maxRows = []int{0, limit - 1, limit/2 + 6}[u.random.IntN(3)]
		}
	}
}
