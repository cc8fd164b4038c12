package messages

import (
	"iter"
	"slices"
	"strings"
	"unicode/utf8"
)

// reservedHeaders are those the email service writes itself, from fields of the
// message, and those that servers on the way write or decide by; a second one would
// contradict it, or say that somebody else sent or passed on the message.
var reservedHeaders = []string{
	"from", "to", "cc", "bcc", "subject", "reply-to", "return-path", "sender", "message-id", "received", "dkim-signature",
	"content-type", "content-transfer-encoding", "mime-version",
}

// resent begins the names of the headers of a message that is sent on, RFC 5322 section 3.6.6.
const resent = "resent-"

// headers are further mail headers, by name. The email document does not show
// their format; an object of strings is assumed. A null or empty header counts
// as left out. RFC 5322 names have no case, so one must not come in two.
func (v value) headers() map[string]string {
	if !v.must(v.kind == anObject, "must be an object of strings") {
		return nil
	}
	headers := make(map[string]string)
	lower := make(map[string]bool)
	for header := range v.members() {
		name := header.key
		low := strings.ToLower(name)
		switch {
		case len(lower) == MaxHeaders:
			v.fault("must have at most 100 members")
			return headers
		case HeaderFault(name) != "":
			v.form.faultNamed(header.name, HeaderFault(name))
		case lower[low]:
			v.form.faultNamed(header.name, "is given twice")
		case header.kind != absent:
			// One line only: a break would begin another header.
			if s := header.lineOf(MaxHeaderValue, "must have at most 8000 characters"); s != "" {
				headers[name] = s
			}
		}
		lower[low] = true
	}
	if len(headers) == 0 {
		return nil
	}
	return headers
}

// HeaderFault is the rule that the name of a further mail header breaks, or "".
func HeaderFault(name string) string {
	low := strings.ToLower(name)
	switch {
	case !isFieldName(name):
		return "is not a header name"
	case slices.Contains(reservedHeaders, low), strings.HasPrefix(low, resent):
		return "is reserved and must not be set here"
	}
	return ""
}

// isFieldName says whether s is a field name of RFC 5322: printable ASCII
// without space and colon.
func isFieldName(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] == ':' || s[i] >= utf8.RuneSelf-1 {
			return false
		}
	}
	return s != "" && len(s) <= MaxHeaderName
}

// memberValue is a member of an object within a request. Its name is its path.
type memberValue struct {
	value
	key string
}

// members are the members of an object, in order.
func (v value) members() iter.Seq[memberValue] {
	return func(yield func(memberValue) bool) {
		for c := enter(v.form.text, v.at.from); ; {
			key, at, ok := c.member()
			if !ok {
				return
			}
			name := string(appendText(nil, key.of(v.form.text)))
			raw := at.of(v.form.text)
			m := memberValue{value{v.form, v.name + within + cleanName(name), raw, at, kindOf(raw)}, name}
			if !yield(m) {
				return
			}
		}
	}
}
