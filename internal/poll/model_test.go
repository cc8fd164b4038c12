package poll

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// The log grows, shifts and changes while it is read, pollers die in the middle of
// whatever they do, now and then there are two of them, and days pass without any.
func TestEachStateOfEachRowIsToldOnce(t *testing.T) {
	for _, o := range []order{newestFirst, oldestFirst, unordered} {
		for seed := range uint64(6) {
			t.Run(fmt.Sprintf("%s %d", o, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { model(t, o, seed) })
			})
		}
	}
}

func model(t *testing.T, o order, seed uint64) {
	random := rand.New(rand.NewPCG(uint64(o), seed))
	u := &upstream{order: o, random: random}
	s := &store{}
	u.add(random.IntN(200))
	time.Sleep(time.Duration(random.IntN(100)) * time.Hour)
	limit := []int{3, 10, 50}[random.IntN(3)]
	u.most = []int{0, 0, limit - 1}[random.IntN(3)]
	u.busy = func(u *upstream) { // rows move while pages are read
		switch random.IntN(200) {
		case 0:
			u.add(random.IntN(2 * limit))
		case 1, 2, 3:
			u.add(1)
		case 4, 5, 6:
			u.settle(3, 2*time.Minute)
		}
	}
	u.latency = 5 * time.Millisecond
	for life := range 9 {
		var pollers sync.WaitGroup
		ctx, stop := context.WithTimeout(t.Context(), time.Duration(1+random.IntN(120))*time.Second)
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
	u.busy = nil // two quiet sweeps to see what is left
	d := &desk{store: s}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	if err := u.poller(t, d, limit).Run(ctx); err != nil {
		t.Fatal(err)
	}
	u.complete(t, s)
}
