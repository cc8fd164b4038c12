package schema

import (
	"encoding/json"
	"strings"

	"errand/internal/bus"
)

// These are the values that have broken readers of JSON, of addresses, of dates and of headers.

var (
	empties = []string{`null`, `""`, `{}`, `[]`, `[ ]`, `{ }`}
	lengths = []int{64, 65, 76, 77, 100, 101, 254, 255, 256, 1000, 1001, 4096, 4097}
	numbers = []string{"0", "-0", "1", "-1", "00", "01", "4.99", "5", "5.0", "5.00", "5.001", "19.99", "29999.99", "30000", "30000.00",
		"30000.01", "30001", "1e3", "1E+2", "0.5e1", "1e-2", "7.0", "7.5",
		"999999999", "1000000000", "9223372036854775808", "1e99", "1e100", "1e999", "1E-999", strings.Repeat("9", 100), "1" +
			strings.Repeat("0", 100), "5.", ".5", "+5", " 5", "5 "}
	odd = []string{" ", "\t", "\n", "\r\n", "\x00", "\x1f", "\x7f", "\u0085", "\u00a0", "\u1680", "\u2003", "\u2028", "\u2029", "\u200b",
		"\u202e", "\u3000", "\ufeff", "\ufffd", "😀", "é", "@", ",", ";", ":", "/", "?", "#", "%",
		"\\", `"`, "<", ">", "(", "[", "=", "-", "_", ".", "0", "9", "A", "T", "Z", "+24:00", "+25:00", ",5", ".5", "//", "http://"}
	unknown = []string{"", "x", "amount ", "Amount", "to", "to_object", "request_id", "subject", "status", "headers", "bucket", "name",
		"digest", "\x00", "é"}
	values = append(append([]string{
		`"a"`, `" "`, `"a\u0000b"`, `"a\r\nBcc: b@c"`, `"\u2028"`, `"\u202e\u200b"`, `"\ud800"`, `"\udc00\ud800"`, `"a@b"`, `"A <a@b>"`,
		`"a@b, c@d"`, `"100.50"`, `"0100"`, `"７"`, `"unmatched"`, `"MAIL_REQUESTS-12"`,
		`"MAIL_REQUESTS-"`, `"mail_requests-12"`, `"AUDIT-1"`, `"DEAD_LETTERS-7"`, `"retry"`, `"report"`, `"resend"`, `"conclude"`, `"Report"`,
		`"2026-02-30"`, `"2026-02-28"`, `"2026-13-01"`, `"2026-1-2"`, `"0000-01-01"`,
		`"2026-01-02 24:00:00"`, `"2026-01-02 15:04:05.5"`, `"2026-01-02T5:04:05Z"`, `"2026-01-02T15:04:05,5Z"`,
		`"2026-01-02T15:04:05.123456789Z"`, `"2026-01-02t15:04:05z"`, `"2026-01-02T15:04:60Z"`, `"2026-01-02T15:04:05"`,
		`"9999-12-31T23:59:59-23:59"`, `"0000-01-01T00:00:00+23:59"`, `"2026-01-02T15:04:05+24:00"`, `"2026-01-02T15:04:05+23:60"`,
		`"https://a/b?c"`, `"HTTPS://A/"`, `"http:a"`, `"http:///a"`, `"http://?a"`, `"http://:80/"`, `"http://@/"`,
		`"http://u@h/"`, `"http://[::1]/"`, `"http://a b/"`, `"http://a/%zz"`, `"ftp://a"`, `"//a"`, `"mailto:a@b"`, `"MAILTO:x"`,
		`"mailto:?subject=x"`, `"mailto:"`, `"\"a b\"@c"`, `"a@b."`, `"@"`, `"a@"`, `"@b"`, `" a@b"`,
		`true`, `false`, `[[]]`, `[null]`, `[1]`, `["a"]`, `[""]`, `["a@b",""]`, `[" , ","\t"]`, `" , "`, `","`, `"\u00a0"`, `["\u00a0"]`,
		`{"a":{"a":1}}`, `{"X-A":"1","x-a":"2"}`, `{"X-A":"1","X-A":"2"}`, `{"X\r\nY":"1"}`, `{"X-A":null}`,
		`{"X-A":""}`, `{"X-A":" "}`, `{"X-A":1}`, `{"":"1"}`, `{"X-Ä":"1"}`, `{"X:":"1"}`, `{"bCc":"1"}`, `{"Bcc":null}`, `{"Resent-X":"1"}`,
		`{"resent":"1"}`, `{"X-A":"` + strings.Repeat("a", 8001) + `"}`, `{"` + strings.Repeat("x", 77) + `":"1"}`,
		`{"bucket":"b","name":"n","digest":"SHA-256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"}`,
		`{"bucket":"b","name":"n","digest":"SHA-256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFV="}`,
		`{"bucket":"b.c","name":" ","digest":"sha-256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU="}`, `{"bucket":"b","name":"n"}`,
		`{"bucket":"b","name":"n","digest":null}`, `{"bucket":"b","name":"n","digest":"SHA-256=AAAA"}`,
		`{"bucket":"b","name":"n","digest":"SHA-256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU=","chunks":1}`,
	}, empties...), append(numbersIn(numbers), idsOfStreams()...)...)
	// headerNames are names of mail headers, in use or not.
	headerNames = strings.Fields(`From To Cc Bcc Subject Reply-To Return-Path Sender Message-ID Received DKIM-Signature Content-Type
		Content-Transfer-Encoding MIME-Version
		Resent-From Resent-To resent-date Date In-Reply-To References Comments Keywords List-Id List-Unsubscribe List-Unsubscribe-Post List-Help
		Precedence Priority Importance Sensitivity
		Auto-Submitted Content-Disposition Content-Language Content-ID Content-Description Content-Location Content-MD5 Content-Base
		Disposition-Notification-To Errors-To Feedback-ID
		ARC-Seal ARC-Message-Signature Authentication-Results DomainKey-Signature Received-SPF Delivered-To Envelope-To Original-Recipient
		Organization User-Agent X-Mailer X-Priority
		X-A x-a X_B a! BCC bCC SUBJECT apparently-to return-receipt-to`)
)

// idsOfStreams are the ids that the programs give.
func idsOfStreams() (all []string) {
	for _, s := range bus.Streams(bus.Limits{}) {
		all = append(all, `"`+s.Name+`-1"`)
	}
	return all
}

// numbersIn returns the texts that JSON takes for numbers.
func numbersIn(texts []string) (all []string) {
	for _, text := range texts {
		if json.Valid([]byte(text)) {
			all = append(all, strings.TrimSpace(text))
		}
	}
	return all
}
