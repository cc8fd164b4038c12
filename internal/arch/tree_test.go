package arch

import (
	"bytes"
	"path"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
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

// maxColumns is how wide a line of Go or Markdown may be; a tab counts as one.
const maxColumns = 140

// unwrappable is what cannot be broken: a row of a table, a heading, a link alone, code in Markdown, a raw string, JSON in one,
// the output of an example.
var unwrappable = regexp.MustCompile("^\\|.*|^#.*|^\\S*https?://\\S+$|^    .*|`[^`]*`|^.*\":[\"{\\[0-9].*|^\t// (Output: )?[{\"].*")

func TestNoLineIsTooWide(t *testing.T) {
	eachFile(t, func(name string, text []byte) {
		ext := path.Ext(name)
		if ext != ".go" && ext != ".md" || bytes.Contains(text, []byte("\n// Code generated ")) {
			return
		}
		fenced, number := false, 0
		for line := range strings.Lines(string(text)) {
			number++
			line = strings.TrimRight(line, "\n")
			if ext == ".md" && strings.HasPrefix(strings.TrimSpace(line), "```") {
				fenced = !fenced
			}
			n := utf8.RuneCountInString(line)
			if n > maxColumns && !fenced && utf8.RuneCountInString(unwrappable.ReplaceAllString(line, "")) > maxColumns {
				t.Errorf("%s:%d has %d columns, want at most %d", name, number, n, maxColumns)
			}
		}
	})
}
