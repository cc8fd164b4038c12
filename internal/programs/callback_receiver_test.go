package programs

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
		refused := logRefusals(zerolog.New(&log))
		for range 100 {
			refused("", 404)
			refused("order-1", 413)
		}
		if n := strings.Count(log.String(), "\n"); n != 2 ||
			!strings.Contains(log.String(), `"request_id":"order-1","http_status":413,"problem":"the body is larger`) ||
			!strings.Contains(log.String(), `{"level":"warn","http_status":404,`) {
			t.Errorf("%d lines, want one of each status, with the request that is known:\n%s", n, &log)
		}
		log.Reset()
		time.Sleep(time.Minute)
		refused("order-1", 413)
		refused("order-1", 503)
		if n := strings.Count(log.String(), "\n"); n != 2 {
			t.Errorf("a minute later: %d lines, want 2:\n%s", n, &log)
		}
	})
}
