package arch

import (
	"bytes"
	"regexp"
	"testing"
)

// forbidden matches what is meaningful on one machine only, or decides for users where
// modules come from. It is written so that it does not match itself.
var forbidden = []*regexp.Regexp{
	regexp.MustCompile(`(?i)\b(proxy|sum)\.golang\.org|\bgo[p]roxy`),
	regexp.MustCompile(`(?m)(?:^|[^\w./-])(?:(?:\.\./)+shared\b|/(?:work|tmp|root)/)`),
}

func TestTreeNamesNoMachine(t *testing.T) {
	eachFile(t, func(name string, text []byte) {
		if bytes.IndexByte(text, 0) >= 0 {
			return // a binary
		}
		for _, re := range forbidden {
			for _, at := range re.FindAllIndex(text, -1) {
				t.Errorf("%s:%d contains %q", name, 1+bytes.Count(text[:at[1]], []byte("\n")), text[at[0]:at[1]])
			}
		}
	})
}
