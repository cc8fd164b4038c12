package callback

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"errand/pkg/messages"
)

// Whatever comes is answered, and soon; what is stored is what was sent whole under a valid token.
func TestBrokenSendersAreAnswered(t *testing.T) {
	const host = " HTTP/1.1\r\nHost: h\r\n"
	own := path(t, "order-1")
	slash := strings.LastIndex(own, "/")
	for name, c := range map[string]struct {
		method, sent string
		want         int // 0: the connection is closed
		stored       int
	}{
		"HTTP/1.0":                     {"GET", "GET " + own + " HTTP/1.0\r\n\r\n", 200, 1},
		"an address with its host":     {"GET", "GET http://h" + own + host + "\r\n", 200, 1},
		"a slash too many":             {"GET", "GET /" + own + host + "\r\n", 200, 1},
		"two slashes before the token": {"GET", "GET " + own[:slash] + "/" + own[slash:] + host + "\r\n", 404, 0},
		"an escaped slash":             {"GET", "GET " + own[:slash] + "%2F" + own[slash+1:] + host + "\r\n", 200, 1},
		"an escaped slash, twice":      {"GET", "GET " + own[:slash] + "%252F" + own[slash+1:] + host + "\r\n", 404, 0},
		"dots":                         {"GET", "GET /a/.." + own + host + "\r\n", 200, 1},
		"dots at the end":              {"GET", "GET " + own + "/." + host + "\r\n", 404, 0},
		"an invalid escape":            {"GET", "GET " + own + "%zz" + host + "\r\n", 400, 0},
		"a very long path":             {"GET", "GET /" + strings.Repeat("a", 10<<10) + own + host + "\r\n", 200, 1},
		"a path beyond all":            {"GET", "GET /" + strings.Repeat("a", 30<<10) + own + host + "\r\n", 431, 0},
		"many headers":                 {"GET", "GET " + own + host + strings.Repeat("A: b\r\n", 5000) + "\r\n", 431, 0},
		"a long query":                 {"GET", "GET " + own + "?" + strings.Repeat("q", 8<<10+1) + host + "\r\n", 414, 0},
		"the longest query":            {"GET", "GET " + own + "?" + strings.Repeat("q", 8<<10) + host + "\r\n", 200, 1},
		"HEAD":                         {"HEAD", "HEAD " + own + host + "\r\n", 405, 0},
		"OPTIONS":                      {"OPTIONS", "OPTIONS " + own + host + "\r\n", 405, 0},
		"OPTIONS of everything":        {"OPTIONS", "OPTIONS *" + host + "\r\n", 404, 0},
		"CONNECT":                      {"CONNECT", "CONNECT h:443" + host + "\r\n", 404, 0},
		"a method in lower case":       {"GET", "get " + own + host + "\r\n", 405, 0},
		"HTTP/2 without TLS":           {"PRI", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 404, 0},
		"an upgrade to HTTP/2": {"GET", "GET " + own + host +
			"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n", 200, 1},
		"no HTTP":                    {"GET", "\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400, 0},
		"a body that ends early":     {"POST", post(t, "order-1", 10) + "123", 408, 0},
		"a body longer than it says": {"POST", post(t, "order-1", 3) + "12345\r\n\r\n", 200, 1},
		"two lengths":                {"POST", "POST " + own + host + "Content-Length: 3\r\nContent-Length: 4\r\n\r\n1234", 400, 0},
		"chunks and a length": {"POST", "POST " + own + host +
			"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", 200, 1},
		"a negative length":     {"POST", "POST " + own + host + "Content-Length: -1\r\n\r\n", 400, 0},
		"a length beyond all":   {"POST", "POST " + own + host + "Content-Length: 9223372036854775807\r\n\r\n", 413, 0},
		"chunks that never end": {"POST", "POST " + own + host + "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n", 408, 0},
		"invalid chunks":        {"POST", "POST " + own + host + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400, 0},
		"more chunks than are taken": {"POST", "POST " + own + host + "Transfer-Encoding: chunked\r\n\r\n" +
			strings.Repeat("4000\r\n"+strings.Repeat("a", 1<<14)+"\r\n", 5), 413, 0},
		"gzip":                          {"POST", "POST " + own + host + "Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n\x1f\x8b", 200, 1},
		"one that asks before the body": {"POST", "POST " + own + host + "Expect: 100-continue\r\nContent-Length: 65537\r\n\r\n", 413, 0},
		"a foreign one, with a body":    {"POST", "POST /a/b" + host + "Content-Length: 100\r\n\r\n", 404, 0},
		"a foreign one, asking before":  {"POST", "POST /a/b" + host + "Expect: 100-continue\r\nContent-Length: 10\r\n\r\n", 404, 0},
	} {
		t.Run(name, func(t *testing.T) {
			serving(t, func(s *served) {
				began, sender := time.Now(), s.dial()
				sender.send <- c.sent
				if status := sender.status(c.method); status != c.want || len(s.stored) != c.stored {
					t.Errorf("%d, and %d stored; want %d, and %d", status, len(s.stored), c.want, c.stored)
				}
				go func() { _, _ = io.Copy(io.Discard, sender.from) }()
				if took := time.Since(began); took > 15*time.Second {
					t.Errorf("answered after %v", took)
				}
			})
		})
	}
}

// A sender that gives up, and a program that ends, lose no callback that arrived completely.
func TestWhatCameWholeIsStoredWhateverEnds(t *testing.T) {
	serving(t, func(s *served) {
		var stored []string
		s.Store = func(ctx context.Context, request string, _ *messages.CallbackBody) error {
			select {
			case <-time.After(time.Second):
				stored = append(stored, request)
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		gone := s.dial()
		gone.send <- post(t, "gone", 1) + "b"
		time.Sleep(100 * time.Millisecond)
		if err := gone.Close(); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if fmt.Sprint(stored) != "[gone]" {
			t.Errorf("stored %v of a sender that hung up", stored)
		}
		slow := s.dial()
		slow.send <- post(t, "slow", 3) + "b"
		time.Sleep(100 * time.Millisecond)
		s.stop() // while it comes
		time.Sleep(time.Second)
		slow.send <- "bb"
		if status := slow.status("POST"); status != http.StatusOK || fmt.Sprint(stored) != "[gone slow]" {
			t.Errorf("%d, stored %v of a callback that came while the program ended", status, stored)
		}
	})
}
