package receiver

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
)

func TestWhyACallbackWasRefusedIsLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		refused := refusals(zerolog.New(&log))
		for range 100 {
			refused("", 404)
			refused("order-1", 413)
		}
		if n := strings.Count(log.String(), "\n"); n != 2 || !strings.Contains(log.String(), `"request_id":"order-1","http_status":413,"problem":"the body is larger`) {
			t.Errorf("%d lines, want one of each status:\n%s", n, &log)
		}
		log.Reset()
		time.Sleep(time.Minute)
		refused("order-1", 413)
		refused("order-1", 503) // said where it is not stored
		if n := strings.Count(log.String(), "\n"); n != 1 {
			t.Errorf("a minute later: %d lines, want 1:\n%s", n, &log)
		}
	})
}
