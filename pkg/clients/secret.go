package clients

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
)

const redacted = "[redacted]"

// Redacted reports whether a secret was taken out of a text.
func Redacted(text string) bool { return strings.Contains(text, redacted) }

// Secret is a text that no format verb, encoder or logger shows. The zero value is empty.
type Secret struct {
	// A pointer, since fmt prints unexported fields of unexported fields without asking their methods; of a pointer it prints the address.
	text *string
}

// NewSecret keeps text without the white space around it: a secret read from a file ends with a line break.
func NewSecret(text string) Secret {
	text = strings.TrimSpace(text)
	if text == "" {
		return Secret{}
	}
	return Secret{text: &text}
}

// Reveal returns the text. Use it only where it is sent or signed with.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// Empty reports whether the text is empty.
func (s Secret) Empty() bool { return s.text == nil }

// Equal reports whether both are the same text.
func (s Secret) Equal(other Secret) bool { return s.Reveal() == other.Reveal() }

// String hides the text.
func (s Secret) String() string {
	if s.text == nil {
		return ""
	}
	return redacted
}

// Format hides the text for every verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// MarshalText hides the text.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue hides the text.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// sendable reports whether the text can stand in a header: an unfit one would fail every call at a place that looks like a network.
func (s Secret) sendable() bool {
	for _, b := range []byte(s.Reveal()) {
		if b <= ' ' || b >= 0x7f {
			return false
		}
	}
	return true
}
