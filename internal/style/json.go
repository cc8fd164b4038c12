package style

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
)

// Escape escapes what is invisible in JSON: it could control a terminal, reorder its text, or hide from a reader. The JSON means the
// same, so it is written like this into files too.
func Escape(json string) string {
	var b strings.Builder
	for _, r := range json {
		if r < 0x7f || unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.String()
}
