package arch

import (
	"bytes"
	"os"
	"path/filepath"
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
	err := walk(func(root, name string) error {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return err
		}
		if bytes.IndexByte(text, 0) >= 0 {
			return nil // a binary
		}
		for _, re := range forbidden {
			for _, at := range re.FindAllIndex(text, -1) {
				line := 1 + bytes.Count(text[:at[1]], []byte("\n"))
				t.Errorf("%s:%d contains %q", name, line, text[at[0]:at[1]])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
