package wire

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// ReservedHeaders are those the email service writes itself, from fields of the
// message, and those that servers on the way write or decide by; a second one would
// contradict it, or say that somebody else sent or passed on the message.
var ReservedHeaders = []string{
	"from", "to", "cc", "bcc", "subject", "reply-to", "return-path", "sender", "message-id", "received", "dkim-signature",
	"content-type", "content-transfer-encoding", "mime-version",
}

// HeaderFault is the rule that the name of a further mail header breaks, or "".
func HeaderFault(name string) string {
	low := strings.ToLower(name)
	switch {
	case !isFieldName(name):
		return "is not a header name"
	// What begins so is of a message that is sent on, RFC 5322 section 3.6.6.
	case slices.Contains(ReservedHeaders, low), strings.HasPrefix(low, "resent-"):
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
