package messages

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func FuzzLongTextIsJSONWhereTheJSONPackageSaysSo(f *testing.F) {
	for _, s := range []string{`{"to":["a@b","c@d"]}`, `"\u00e4\n\"\\"`, `"\u12","`, `"\u12`, `"\`, `"a`, `"`, "\"a\nb\"", `"a""b"`, `["\x"]`,
		`{"a" "b"}`, `\"a"`,
		`["a\`, `{"a":"\ud83d\ude00","b":[1e5,null]}`, "", "\"\xff\"", `"a"]`, `["\u"x00"]`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, text := range []string{s, "[" + s + "]", `{"a":` + s + "}"} {
			for _, long := range []string{strings.Repeat(" ", 1<<10) + text, strings.TrimSuffix(text, "]") + `,"` + strings.Repeat("x", 1<<10) +
				`"]`} {
				if got, want := isJSON([]byte(long)), json.Valid([]byte(long)); got != want {
					t.Errorf("%q: got %v, want %v", text, got, want)
				}
			}
		}
	})
}

// Anybody who publishes can send a string that is never closed: what is in it must not be looked through again at each line break.
func TestLineBreaksInAStringTakeNoLongerThanEscapes(t *testing.T) {
	fastest := func(text string) time.Duration {
		body := []byte(`["` + strings.Repeat(text, 1<<16))
		best := time.Hour
		for range 3 {
			begin := time.Now()
			if isJSON(body) {
				t.Errorf("a string is closed that ends in %q", text)
			}
			best = min(best, time.Since(begin))
		}
		return best
	}
	if breaks, escapes := fastest("\n"), fastest(`\n`); breaks > 100*escapes { // about the same; 600 times if each looks for the next string
		t.Errorf("line breaks took %v, escapes %v", breaks, escapes)
	}
}
