package messages

import "strings"

// MatchSubject reports whether a subject matches a NATS pattern: * is any one token, > all that follow.
func MatchSubject(pattern, subject string) bool {
	want, have := strings.Split(pattern, "."), strings.Split(subject, ".")
	for i, token := range want {
		switch {
		case token == ">":
			return len(have) > i
		case i >= len(have) || token != "*" && token != have[i]:
			return false
		}
	}
	return len(want) == len(have)
}

// PatternsOverlap reports whether one subject can match both patterns.
func PatternsOverlap(one, other string) bool {
	a, b := strings.Split(one, "."), strings.Split(other, ".")
	for i := 0; i < len(a) && i < len(b); i++ {
		switch {
		case a[i] == ">" || b[i] == ">":
			return true
		case a[i] != b[i] && a[i] != "*" && b[i] != "*":
			return false
		}
	}
	return len(a) == len(b)
}
