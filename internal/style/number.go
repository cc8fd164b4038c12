package style

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Count writes a whole number with its thousands separated: 12,345.
func Count(n any) string {
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// Plural writes a number of things: 1 batch, 2 batches.
func Plural(n any, one, many string) string {
	if fmt.Sprint(n) == "1" {
		return "1 " + one
	}
	return Count(n) + " " + many
}

// Bytes writes a size with a unit: 512B, 11.8M, 120G.
func Bytes(n any) string {
	const units = "BKMGT"
	size, _ := strconv.ParseFloat(fmt.Sprint(n), 64) // of a whole number
	unit := 0
	for size >= 1024 && unit < len(units)-1 {
		size, unit = size/1024, unit+1
	}
	if unit == 0 || size >= 100 {
		return fmt.Sprintf("%.0f%c", size, units[unit])
	}
	return fmt.Sprintf("%.1f%c", size, units[unit])
}

// Span is a duration in the largest unit that it has two of: 90s, 45m, 30h, 12d.
func Span(d time.Duration) string {
	switch d = d.Abs(); {
	case d < 2*time.Minute && d != time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// Ago is how long ago something was.
func Ago(d time.Duration) string {
	if d < time.Second {
		return "just now"
	}
	return Span(d) + " ago"
}

// Capital is a text with a capital letter at its beginning.
func Capital(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}
