package clients

import (
	"net/http"
	"testing"
	"time"
)

func TestRetryAfterIsReadAndBounded(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	const day = 24 * time.Hour
	for _, c := range []struct {
		after, reset string
		status       int
		want         time.Duration
	}{
		{"120", "", 503, 2 * time.Minute},
		{" 7 ", "", 429, 7 * time.Second},
		{"1.9", "", 429, time.Second},
		{"0", "60", 429, 0},
		{"-5", "", 429, 0},
		{"-99999999999999999999", "", 429, 0},
		{"99999999999999999999", "", 429, day},
		{"9223372036854775807", "", 429, day},
		{"86401", "", 429, day},
		{"Thu, 01 Jan 2026 12:00:30 GMT", "", 503, 30 * time.Second},
		{"Thursday, 01-Jan-26 12:00:30 GMT", "", 503, 30 * time.Second},
		{"Thu, 01 Jan 2026 11:00:00 GMT", "", 503, 0},
		{"Fri, 31 Dec 9999 23:59:59 GMT", "", 503, day},
		{"soon", "", 503, 0},
		{"Inf", "NaN", 429, 0},
		{"", "", 429, 0},
		{"", "45", 429, 45 * time.Second},
		{"soon", "45", 429, 45 * time.Second},
		{"", "45", 503, 0}, // a rate window says nothing about an outage
		{"", "1767268830", 429, 30 * time.Second},
		{"", "1767268830000", 429, 30 * time.Second},
		{"", "1000000000", 429, 0},
		{"", "99999999999999999999", 429, day},
		{"", "-1", 429, 0},
	} {
		header := http.Header{}
		if c.after != "" {
			header.Set("Retry-After", c.after)
		}
		if c.reset != "" {
			header.Set("x-ratelimit-reset", c.reset)
		}
		if got := retryAfter(header, c.status, now); got != c.want {
			t.Errorf("Retry-After %q, x-ratelimit-reset %q, status %d: got %v, want %v", c.after, c.reset, c.status, got, c.want)
		}
	}
}

func FuzzRetryAfter(f *testing.F) {
	f.Add("120", "45")
	f.Add("Thu, 01 Jan 2026 12:00:30 GMT", "1767268830")
	f.Fuzz(func(t *testing.T, after, reset string) {
		header := http.Header{"Retry-After": {after}, "X-Ratelimit-Reset": {reset}}
		if got := retryAfter(header, 429, time.Now()); got < 0 || got > longestWait {
			t.Errorf("Retry-After %q, x-ratelimit-reset %q: got %v", after, reset, got)
		}
	})
}
