package messages

import (
	"maps"
	"slices"
	"strings"
)

// Version counts the versions of what requests may say: it is raised with every field or
// value that older programs refuse. `errand provision` notes it at the queues, so that
// older programs leave what they refuse to newer ones while both run.
const Version = 1

// Meta is what is known of a request's body whether it is valid or not.
type Meta struct {
	// RequestID is the body's request_id, "" when it names none that fits.
	RequestID string
	// Fingerprint is the SHA-256, in hex, of the body as JSON with sorted keys
	// and without request_id; "" when the body is no JSON object.
	Fingerprint string
}

// Invalid is the error of a request that breaks the rules. Nothing was done
// for it and repeating it is of no use. Fields maps each faulty field to the
// rules it breaks, "body" being the message as a whole. It holds names and
// rules, never a value of the request.
type Invalid struct{ Fields map[string][]string }

// Error lists fields and rules, by field.
func (e *Invalid) Error() string {
	var b strings.Builder
	b.WriteString("invalid request")
	sep := ": "
	for _, name := range slices.Sorted(maps.Keys(e.Fields)) {
		b.WriteString(sep)
		b.WriteString(name)
		b.WriteString(" ")
		b.WriteString(strings.Join(e.Fields[name], ", "))
		sep = "; "
	}
	return b.String()
}
