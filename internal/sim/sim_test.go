package sim

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"errand/internal/sandbox/devkit/inshort"
)

var (
	forTime = flag.Duration("sim.for", 0, "for how long new seeds are tried; 0: the first ones alone")
	oneSeed = flag.Uint64("sim.seed", 0, "try this seed alone, and tell its story")
	first   = flag.Uint64("sim.from", 0, "the first seed; 0: by the clock")
	count   = flag.Uint64("sim.count", 1<<62, "how many seeds at most")
	once    = flag.Bool("sim.first", false, "end with the first seed that fails, and leave its script as it is")
	lines   = flag.Int("sim.lines", 24, "lines of a story")
	ignore  = flag.String("sim.ignore", "", "broken promises that are known: a regular expression")
	keep    = flag.String("sim.keep", "", "a directory for the scripts of seeds that fail")
)

// failure is a history in which a promise was broken.
type failure struct {
	script   *script
	problems []string
	story    string
}

// play runs a script; nil if all promises were kept.
func play(t *testing.T, s *script) (failed *failure) {
	synctest.Test(t, func(*testing.T) {
		w := newWorld(s)
		w.run()
		if len(w.problems) > 0 {
			failed = &failure{s, w.problems, w.story(*lines)}
		}
	})
	return failed
}

// kind is what a failure is about, without names and numbers: a shrunk script must fail for the same.
func (f *failure) kind() string {
	kind := strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, f.problems[0])
	return kind[max(0, strings.IndexByte(kind, ' ')):]
}

// report shrinks a failure and returns it with its story.
func report(t *testing.T, f *failure) *failure {
	shrunk := f
	shrink(f.script, time.Now().Add(20*time.Second), func(s *script) bool {
		for range 2 {
			if again := play(t, s); again != nil && sameKind(again, f) {
				shrunk = again
				return true
			}
		}
		return false
	})
	return shrunk
}

func sameKind(a, b *failure) bool {
	words := func(f *failure) string {
		return strings.Join(strings.Fields(f.kind())[:min(4, len(strings.Fields(f.kind())))], " ")
	}
	return words(a) == words(b)
}

// Whatever happens, every request has an outcome, the outcome is true, and nothing is done twice.
func TestWhateverHappensThePromisesAreKept(t *testing.T) {
	if *oneSeed > 0 {
		tell(t, draw(*oneSeed))
		return
	}
	from, count, began, cpu := *first, *count, time.Now(), cpuTime()
	until := began.Add(*forTime)
	switch {
	case *forTime == 0:
		from, count, until = 1, uint64(inshort.Choose(t, 500, 50)), began.Add(time.Hour)
	case from == 0:
		from = uint64(began.UnixNano())
	}
	played, failed := playAll(t, from, count, until)
	took := time.Since(began)
	each := time.Duration(float64(cpuTime()-cpu) / float64(max(played, 1)))
	t.Logf("%d histories from seed %d in %v: %.0f a second, %v of CPU each, %.0f a second on two cores",
		played, from, took.Round(time.Millisecond), float64(played)/took.Seconds(), each.Round(time.Microsecond), 2/each.Seconds())
	for _, f := range failed {
		if !*once {
			f = report(t, f)
		}
		keepScript(t, f)
		t.Errorf("%s\n%s", strings.Join(f.problems, "\n"), f.story)
	}
}

// Every script that ever failed is played again.
func TestWhatOnceFailedIsPlayedAgain(t *testing.T) {
	files, err := filepath.Glob("testdata/failed/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s := &script{}
			if err := json.Unmarshal(data, s); err != nil {
				t.Fatal(err)
			}
			if f := play(t, s); f != nil {
				t.Errorf("%s\n%s", strings.Join(f.problems, "\n"), f.story)
			}
		})
	}
}

func tell(t *testing.T, s *script) {
	f := play(t, s)
	if f == nil {
		t.Log("all promises are kept")
		return
	}
	if !*once {
		f = report(t, f)
	}
	keepScript(t, f)
	t.Errorf("%s\n%s", strings.Join(f.problems, "\n"), f.story)
}

// maxFailures is how many different failures are looked for before the rest of the time is given up.
const maxFailures = 3

// playAll plays seeds on all cores until a time, or until some fail.
func playAll(t *testing.T, from, count uint64, until time.Time) (played int64, failed []*failure) {
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	var next, done atomic.Int64
	var mu sync.Mutex
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for time.Now().Before(until) {
				n := uint64(next.Add(1) - 1)
				mu.Lock()
				enough := len(failed) >= maxFailures || *once && len(failed) > 0
				mu.Unlock()
				if n >= count || enough {
					return
				}
				f := play(t, draw(from+n))
				done.Add(1)
				if f != nil {
					mu.Lock()
					known := false
					for _, other := range failed {
						known = known || sameKind(other, f)
					}
					if !known {
						failed = append(failed, f)
					}
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	return done.Load(), failed
}

// keepScript writes a failing script to a file, for testdata.
func keepScript(t *testing.T, f *failure) {
	if *keep == "" {
		return
	}
	data, err := json.MarshalIndent(f.script, "", "\t")
	if err == nil {
		err = os.WriteFile(filepath.Join(*keep, fmt.Sprintf("%d.json", f.script.Seed)), append(data, '\n'), 0o644)
	}
	if err != nil {
		t.Error(err)
	}
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
