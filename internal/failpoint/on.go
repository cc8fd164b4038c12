//go:build failpoints

package failpoint

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// The variable names the point at which the process kills itself, and at which
// passing if it is not the first: "before ack", "before ack@3". A store point without
// a type of event, such as "before store@3", counts the stores of all types.
var (
	at, nth = chosen(os.Getenv("ERRAND_FAILPOINT"))
	passed  atomic.Int64
)

func chosen(text string) (string, int64) {
	name, times, found := strings.Cut(text, "@")
	if !found {
		return name, 1
	}
	n, err := strconv.ParseInt(times, 10, 64)
	if err != nil {
		panic("ERRAND_FAILPOINT: " + err.Error())
	}
	return name, n
}

// Here kills the process as kill -9 does when this is the chosen point.
func Here(point string, of ...string) {
	whole := point + " " + strings.Join(of, ".")
	if at != point && at != whole || passed.Add(1) != nth {
		return
	}
	_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
	select {} // the signal is on its way
}
