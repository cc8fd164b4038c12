package clients

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// longestWait bounds what an upstream may ask for.
const longestWait = 24 * time.Hour

// retryAfter is how long an answer with status asks to wait: Retry-After in seconds or as a date (RFC 9110), else for a 429
// x-ratelimit-reset. The latter comes with every answer of some services, so it says nothing about other failures.
func retryAfter(header http.Header, status int, now time.Time) time.Duration {
	text := strings.TrimSpace(header.Get("Retry-After"))
	if n, ok := wholeSeconds(text); ok {
		return bounded(n)
	}
	if at, err := http.ParseTime(text); err == nil {
		return bounded(at.Unix() - now.Unix())
	}
	if status != http.StatusTooManyRequests {
		return 0
	}
	n, ok := wholeSeconds(strings.TrimSpace(header.Get("X-Ratelimit-Reset")))
	switch {
	case !ok:
		return 0
	case n >= 1e12: // milliseconds since 1970
		return bounded(n/1000 - now.Unix())
	case n >= 1e9: // seconds since 1970
		return bounded(n - now.Unix())
	}
	return bounded(n)
}

// wholeSeconds reads a decimal number; a fraction is dropped and what is too large stays large.
func wholeSeconds(text string) (int64, bool) {
	whole, _, _ := strings.Cut(text, ".")
	n, err := strconv.ParseInt(whole, 10, 64)
	return n, err == nil || errors.Is(err, strconv.ErrRange)
}

func bounded(seconds int64) time.Duration {
	return time.Duration(min(max(seconds, 0), int64(longestWait/time.Second))) * time.Second
}
