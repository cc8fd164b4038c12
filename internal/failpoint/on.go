//go:build failpoints

package failpoint

import (
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// The variable names the point at which the process kills itself, and at which
// passing if it is not the first: "before ack", "before ack@3". A store point without
// a type of event, such as "before store@3", counts the stores of all types. With
// "stop at " in front the process stands still there until it is told to continue.
var (
	stops, at, nth = chosen(os.Getenv("ERRAND_FAILPOINT"))
	passed         atomic.Int64
)

func chosen(text string) (stops bool, name string, n int64) {
	text, stops = strings.CutPrefix(text, "stop at ")
	name, times, found := strings.Cut(text, "@")
	if !found {
		return stops, name, 1
	}
	n, err := strconv.ParseInt(times, 10, 64)
	if err != nil {
		panic("ERRAND_FAILPOINT: " + err.Error())
	}
	return stops, name, n
}

// Here kills the process as kill -9 does when this is the chosen point, or stops it.
func Here(point string, of ...string) {
	whole := point + " " + strings.Join(of, ".")
	if at != point && at != whole || passed.Add(1) != nth {
		return
	}
	if stops {
		going := make(chan os.Signal, 1)
		signal.Notify(going, syscall.SIGCONT)
		_, _ = os.Stderr.WriteString("failpoint: stopped\n")
		_ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP)
		<-going // a stop may take its time
		return
	}
	_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
	select {} // the signal is on its way
}
