package mail

import (
	"strconv"
	"strings"

	"errand/pkg/messages"
)

// Reply finds the reply code and the enhanced status code in the receiving server's reply, maybe quoted by the sender:
//
//	250 2.0.0 OK    550-5.1.1 No such user    host mx.test said: 451 #4.7.1 later
//
// A code is at the start, or behind a colon, a bracket or a quotation mark. An enhanced one is next to it, or has its class.
func (e Entry) Reply() (r messages.SMTP) {
	text := e.Response
	quoted, next := true, true
	for len(text) > 0 {
		n := len(text) - len(strings.TrimLeft(text, "0123456789."))
		if n == 0 {
			quoted = isOneOf(text[0], `:(["`) || quoted && text[0] == ' '
			next = next && isOneOf(text[0], " -#")
			text = text[1:]
			continue
		}
		number := text[:n]
		text = text[n:]
		isFirst := r.Code == 0 && quoted && isCode(number) && (text == "" || isOneOf(text[0], " -\r\n"))
		if isFirst {
			r.Enhanced = ""
			r.Code, _ = strconv.Atoi(number)
		} else if code := strings.TrimRight(number, "."); r.Enhanced == "" && isEnhanced(code) && (next || r.Code/100 == int(code[0]-'0')) {
			r.Enhanced = code
		}
		quoted, next = false, isFirst
	}
	return r
}

func isOneOf(c byte, all string) bool { return strings.IndexByte(all, c) >= 0 }

func isCode(number string) bool {
	return len(number) == 3 && isOneOf(number[0], "245") && isOneOf(number[1], "012345") && number[2] != '.'
}

// isEnhanced: class 2, 4 or 5, then twice a dot and one to three digits.
func isEnhanced(number string) bool {
	class, rest, _ := strings.Cut(number, ".")
	subject, detail, _ := strings.Cut(rest, ".")
	isPart := func(part string) bool { return len(part) > 0 && len(part) <= 3 && !strings.Contains(part, ".") }
	return len(class) == 1 && isOneOf(class[0], "245") && isPart(subject) && isPart(detail)
}
