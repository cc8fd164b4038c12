package deliveries

import (
	"strings"

	"errand/pkg/messages"
)

// parseReply finds the reply code and the enhanced status code in a receiving server's reply, maybe quoted by the sender:
//
//	250 2.0.0 OK    550-5.1.1 No such user    host mx.test said: 451 #4.7.1 later
func parseReply(text string) messages.SMTP {
	code, rest := replyCode(text)
	trimmed := strings.TrimLeft(rest, " -#")
	enhanced := enhancedAt(trimmed)
	for at := 0; enhanced == "" && code != 0 && at < len(rest); at++ { // anywhere else it must have the code's class
		if isDigit(rest[at]) && (at == 0 || !isDigit(rest[at-1]) && rest[at-1] != '.') && int(rest[at]-'0') == code/100 {
			enhanced = enhancedAt(rest[at:])
		}
	}
	return messages.SMTP{Code: code, Enhanced: enhanced}
}

// replyCode finds a reply code at the start, or after a colon, a bracket or a quotation mark.
func replyCode(text string) (code int, rest string) {
	for at := 0; at+3 <= len(text); at++ {
		if at > 0 && !strings.ContainsRune(` :("[`, rune(text[at-1])) {
			continue
		}
		if at > 0 && text[at-1] == ' ' {
			if before := strings.TrimRight(text[:at], " "); before != "" && before[len(before)-1] != ':' {
				continue
			}
		}
		c := text[at : at+3]
		if (c[0] != '2' && c[0] != '4' && c[0] != '5') || c[1] < '0' || c[1] > '5' || !isDigit(c[2]) {
			continue
		}
		if end := at + 3; end < len(text) && text[end] != ' ' && text[end] != '-' && text[end] != '\r' && text[end] != '\n' {
			continue
		}
		return int(c[0]-'0')*100 + int(c[1]-'0')*10 + int(c[2]-'0'), text[at+3:]
	}
	return 0, text
}

// enhancedAt is the enhanced code at the beginning of text, or "": class 2, 4 or 5, then
// twice a dot and one to three digits.
func enhancedAt(text string) string {
	if text == "" || text[0] != '2' && text[0] != '4' && text[0] != '5' {
		return ""
	}
	at := 1
	for range 2 {
		if at >= len(text) || text[at] != '.' {
			return ""
		}
		at++
		first := at
		for at < len(text) && isDigit(text[at]) {
			at++
		}
		if at == first || at-first > 3 {
			return ""
		}
	}
	if at < len(text)-1 && text[at] == '.' && isDigit(text[at+1]) { // an address such as 5.1.1.7
		return ""
	}
	return text[:at]
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
