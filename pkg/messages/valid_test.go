package messages

import (
	"encoding/json"
	"strings"
	"testing"
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
