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

// The variable names the point at which the process kills itself: "before ack" the first time that it is reached, "before
// ack@3" the third time. A store point without a type, such as "before store@3", counts all events. With "stop at " in front,
// the process is stopped there until it gets SIGCONT.
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

// Here kills the process, as kill -9 does, or stops it if this is the chosen point.
func Here(point string, of ...string) {
	full := point + " " + strings.Join(of, ".")
	if at != point && at != full || passed.Add(1) != nth {
		return
	}
	if stops {
		continued := make(chan os.Signal, 1)
		signal.Notify(continued, syscall.SIGCONT)
		_, _ = os.Stderr.WriteString("failpoint: stopped\n")
		_ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP)
		<-continued // the process may run on for a moment before it stops
		return
	}
	_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
	select {} // until the signal arrives
}
