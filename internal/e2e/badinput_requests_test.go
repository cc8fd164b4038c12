package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"errand/internal/bus"
	"errand/internal/sandbox/devkit/inshort"
)

// Every kind of bad input ends as failed/invalid_request that names the field, its
// bytes are on dead.…, no upstream is called, and the good ones behind are answered.
func TestBadInputIsReported(t *testing.T) {
	for _, q := range operations {
		for _, concurrency := range inshort.Choose(t, []int{2, 8}, []int{8}) {
			t.Run(fmt.Sprint(q.Requested(), " ", concurrency), func(t *testing.T) {
				kinds := slices.Concat(unreadable(), strangeMembers(), badIDs())
				switch q.call {
				case "enroll":
					kinds = append(kinds, badEnrollments()...)
				case "send":
					kinds = append(kinds, badMessages()...)
				case "transactions":
					for _, c := range [][2]string{{`{"max_pages":-1}`, "max_pages"}, {`{"page":1}`, "page"}, {`{"max_pages":1e999}`, "max_pages"},
						{`{"max_pages":0}`, "max_pages"}, {`{"status":1.5}`, "status"}, {`{"status":true}`, "status"},
						{`{"payer_email":"zqPayer"}`, "payer_email"},
						{`{"order_number":"` + strings.Repeat("o", 256) + `"}`, "order_number"}, {`{"order_number":"a\u0000"}`, "order_number"},
						{`{"exchange_reference_number":["zqPayer"]}`, "exchange_reference_number"}} {
						kinds = append(kinds, poison{body: c[0], field: c[1]})
					}
				case "account":
					kinds = append(kinds, poison{body: `{"account":1}`, field: "account"})
				}
				wantRejected(t, q, concurrency, kinds)
			})
		}
	}
}

// unreadable are messages that hold no JSON object.
func unreadable() (kinds []poison) {
	for _, body := range []string{"", " \r\n\t", "\x00", "\xff\xfe", "\x1f\x8b\x08" + payerMarker, "\xef\xbb\xbf{}", "{", "}", "x", "nope",
		"[]", "null", `"` + payerMarker + `"`, "7", "-0", "1e999", "NaN",
		`{"a":1}{"b":2}`, `{"a":1}x`, `{"a":`, `{"a":NaN}`, `{"a":Infinity}`, `{"a":-Infinity}`, `{"a":+1}`, `{"a":01}`, `{"a":.5}`, `{"a":1.}`,
		`{"a":0x1}`, `{a:1}`, `{"a":1,}`, `{"a":'` + payerMarker + `'}`,
		"{\"a\":\"\xff\"}", "{\"a\":\"\xc0\x80\"}", "{\"a\":\"\xed\xa0\x80\"}", "{\"\xff\":1}", "{\"a\":\"\x01\"}", "{\"a\":\"line\nbreak\"}",
		`{"a":"\x41"}`, `{"a":"\ud8"}`, `{"a":tru}`, "/**/{}"} {
		kinds = append(kinds, poison{body: body, field: "body"})
	}
	return append(kinds,
		poison{name: "deeper than is read", body: strings.Repeat("[", 200_000), field: "body"},
		poison{name: "deep and closed", body: `{"a":` + strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001) + `}`, field: "body"},
		poison{name: "max size, binary", body: strings.Repeat("\xfe", maxRequest), field: "body"})
}

// maxRequest is the size of the largest message that the request streams take: the
// server's usual max_payload less 16 KiB, and the empty header block.
const maxRequest = 1<<20 - 16<<10 - len("NATS/1.0\r\n\r\n")

// strangeMembers are objects with members that no request has, or has twice.
func strangeMembers() (kinds []poison) {
	filled := func(before, after string) string {
		return before + strings.Repeat("x", maxRequest-len(before)-len(after)) + after
	}
	var names []string
	for i := range 50_000 {
		names = append(names, fmt.Sprintf(`"n%d":%d`, i, i))
	}
	kinds = []poison{
		{name: "max size", body: filled(`{"nobody":"`, `"}`), field: "nobody"},
		{name: "a name of max size", body: filled(`{"`, `":1}`), field: strings.Repeat("x", 64)},
		{name: "50,000 names", body: "{" + strings.Join(names, ",") + "}", field: "body"},
		{name: "9,000 levels of arrays", body: `{"nobody":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + `}`, field: "nobody"},
		{name: "9,000 levels of objects", body: strings.Repeat(`{"nobody":`, 9000) + "1" + strings.Repeat("}", 9000), field: "nobody"},
		{name: "400 digits", body: `{"nobody":` + strings.Repeat("9", 400) + `}`, field: "nobody"},
		{name: "a huge exponent", body: `{"nobody":1e` + strings.Repeat("9", 400) + `}`, field: "nobody"},
		{body: `{"` + strings.Repeat(`\u202e`, 100) + `":1}`, field: strings.Repeat("\u202e", 64)},
		{body: `{"a\r\nb\u0000\u2028":1}`, field: "a  b  "}, {body: `{"":1}`, field: `""`}, {body: `{"\ud800":1}`, field: "\ufffd"},
		{body: `{"REQUEST_ID":"` + payerMarker + `"}`, field: "REQUEST_ID"}, {body: `{"request_id ":"a"}`, field: "request_id "},
		{body: `{"request_id\u200b":"a"}`, field: "request_id\u200b"},
		{body: `{"nobody":1,"nobody":1}`, field: "nobody"}, {body: `{"nobody":{"deep":[{"a":1,"\u0061":2}]}}`, field: "nobody"},
		{body: `{"request_id":"a","request_id":"a"}`, field: "request_id"}, {body: `{"request_id":"a","r\u0065quest_id":"b"}`,
			field: "request_id"}, {body: `{"request_id":"a","request_id":null}`, field: "request_id"},
	}
	for _, number := range []string{"-0", "1e999", "-1e-999", "0.1e+17", "9223372036854775808"} {
		kinds = append(kinds, poison{body: `{"nobody":` + number + `}`, field: "nobody"})
	}
	return kinds
}

// badIDs are request ids that do not fit, or that the programs make themselves.
func badIDs() (kinds []poison) {
	ids := []string{`"unmatched"`, `"MAIL_EVENTS-0"`, `"MANDATE_EVENTS-18446744073709551616"`, `"."`, `".."`, `"*"`, `">"`, `"a.b"`, `" "`, `"a b"`, `" a"`, `"a "`, `"ü"`, `"a\u0000"`, `"a\n"`,
		`"\u202ea"`, `"a\u200b"`, `"\ud800"`, `"` + strings.Repeat("x", 65) + `"`, `"$JS"`, `"a/b"`, `"../a"`,
		"7", "-0", "1e999", "true", "false", `["a"]`, `{"a":"b"}`}
	for _, stream := range bus.Streams(bus.Limits{}) {
		ids = append(ids, `"`+stream.Name+`-12"`)
	}
	for _, id := range ids {
		kinds = append(kinds, poison{body: `{"request_id":` + id + `}`, field: "request_id"},
			poison{body: `{"request_id":` + id + `,"nobody":"` + payerMarker + `"}`, field: "request_id",
				header: []string{"Nats-Msg-Id: would-fit-" + fmt.Sprint(len(kinds))}})
	}
	return append(kinds, poison{name: "an id of 64 KiB", body: `{"request_id":"` + strings.Repeat("x", 64<<10) + `"}`, field: "request_id"},
		poison{body: `{"request_id":"null","nobody":1}`, field: "nobody", id: "null"},
		poison{body: `{"request_id":"","nobody":1}`, field: "nobody"}, poison{body: `{"request_id":null,"nobody":1}`, field: "nobody",
			header: []string{"Nats-Msg-Id: from-the-header"}, id: "from-the-header"})
}

func badEnrollments() (kinds []poison) {
	long := strings.Repeat("9", 400)
	for field, values := range map[string][]string{
		"amount": {"4.99", `"30000.01"`, `"1e3"`, "1e2", "5e0", "1E+2", "100.001", "-100", "-0", "0", "1e999", "1e-999", "1e" + long, long,
			`"` + long + `"`, "0." + long, `"NaN"`, `"Infinity"`, `" 100"`, `"100 "`, `"+100"`, `"1,000"`,
			`"１００"`, `"0100"`, `"5."`, `".5"`, `"100.0\u0000"`, "true", "[100]", `{"a":100}`, `"zqPayer"`},
		"payer_id":               {`"12a"`, "-1", "1.5", "1e3", "-0", long, `"` + long + `"`, `"12 34"`, `"１２"`, `"zqPayer"`, "true", "[1]"},
		"payer_telephone_number": {`"+60123"`, "1.5", `"012-345"`, long, `"01\u00002"`},
		"payer_id_type":          {"-1", "1.0", "1e0", `"01"`, "true", `"zqPayer"`, "9999999999"},
		"max_frequency":          {"0", "-1", "1.5", "1e999", `"9 "`, "1000000000", `"NaN"`},
		"payer_email": {`"x"`, `"a@example.test\r\nBcc: zqPayer@example.test"`, `"a@example.test, b@example.test"`, `"<a@example.test>"`,
			`"A <a@example.test>"`, `"a b@example.test"`, `"a@"`, `"@b"`, `"a@@b"`, `"a\u0000@example.test"`, `"a\u2028@example.test"`,
			`"` + strings.Repeat("zqPayer", 10_000) + `@example.test"`, "7"},
		"payer_name": {`"zqPayer\r\nb"`, `"a\u0000"`, `"a\u2028b"`, `"a\u0085b"`, `"   "`, `"\t"`, "7", `["zqPayer"]`, `"` +
			strings.Repeat("x", 1001) + `"`},
		"order_number": {`"a\nb"`, `" "`, `" DD001"`, `"DD001 "`, `"  DD 001"`, `"DD001\u00a0"`, "7", `"` + strings.Repeat("o", 256) + `"`},
		"effective_date": {`"2026-02-30"`, `"2026-1-1"`, `"26-01-01"`, `"2026-01-01T00:00:00Z"`, "20260101", `"0000-00-00"`,
			`"10000-01-01"`, `"2026-01-01 "`},
		"expiry_date":     {`"tomorrow"`, `"2026-13-01"`},
		"link_expired_at": {`"2026-01-01"`, `"2026-01-01 25:00:00"`, `"2026-01-01 00:00:00.5"`, `"2026-01-01T00:00:00Z"`},
		"give_up_at": {`"tomorrow"`, `"10000-01-01T00:00:00Z"`, `"2026-02-30T00:00:00Z"`, "0", "1e999", `"2026-01-01 00:00:00"`,
			`"2026-01-01T00:00:00"`, `"2026-01-01T24:00:00Z"`},
		"return_url": {`"/x"`, `"javascript:alert(1)"`, `"//example.test"`, `"http://"`, `"https://a b"`,
			`"https://example.test\r\nX: y"`, `"https://example.test/` + strings.Repeat("x", 5000) + `"`, `"http://%zz"`},
		"metadata":           {`"` + strings.Repeat("m", 1<<16+1) + `"`, `{"zqPayer":1}`, `"a\u0000"`},
		"on_unknown":         {`"maybe"`, `"resend"`, `"RETRY"`, "true"},
		"application_reason": {`"a\u0007"`, "false"},
	} {
		for _, value := range values {
			kinds = append(kinds, with(enrollment(""), field, value))
		}
	}
	return append(kinds, poison{body: `{"order_number":"o"}`, field: "amount"}, poison{body: `{"orderNumber":"` + payerMarker + `"}`,
		field: "orderNumber"}, poison{body: `{"amount":5,"amount":6}`, field: "amount"},
		poison{body: `{"amount":5,"\u0061mount":5}`, field: "amount"})
}

func badMessages() (kinds []poison) {
	headers := make([]string, 101)
	for i := range headers {
		headers[i] = fmt.Sprintf(`"X-%d":"v"`, i)
	}
	for field, values := range map[string][]string{
		"subject": {`"a\nb"`, `"zqPayer\r\nBcc: zqPayer@example.test"`, `"a\u2028b"`, `"a\u2029b"`, `"a\u0085b"`, `"a\u0000"`, `" "`, `""`,
			"null", "7", `"` + strings.Repeat("s", 1001) + `"`},
		"content": {`"a\u0000b"`, `""`, "7", `["zqPayer"]`},
		"to": {"[1]", "7", `[null]`, `[["a@example.test"]]`, `{"a":"b@example.test"}`, `[]`, `""`, `" , ,"`, `[""]`, `["nobody"]`,
			`"zqPayer"`, `["` + strings.Repeat("a", 64<<10) + `@example.test"]`, `["a@example.test\r\nBcc: b@example.test"]`,
			`["a\u0000@example.test","\u202e"]`},
		"from": {`"no address"`, `"A\r\nB <a@example.test>"`, `"a@example.test, b@example.test"`, `"A\u2028 <a@example.test>"`, `"<>"`,
			`"` + strings.Repeat("a", 64<<10) + `@example.test"`, "7"},
		"reply_to": {`"zqPayer"`, `["a@example.test"]`},
		"as_html":  {"2", "-1", "-0", "1.0", "1e0", `"1"`, `"true"`, "1e999"},
		"headers": {`{"X-A":"b\r\nBcc: c@example.test"}`, `{"X-A":"a\u2028b"}`, `{"X-A":"a\u0000"}`, `{"Bcc":"zqPayer@example.test"}`,
			`{"bCC":"x@example.test"}`, `{"Content-Type":"text/html"}`, `{"X A":"1"}`, `{"X:A":"1"}`, `{"":"1"}`, `{"X\r\nBcc":"1"}`, `{"ü":"1"}`,
			`{"\u202eX":"1"}`, `{"X\u200b":"1"}`,
			`{"X-A":1}`, `{"X-A":["1"]}`, `["X-A: 1"]`, `"X-A: 1"`, `{"X-A":"1","x-a":"2"}`, `{"X-A":"1","X-A":"1"}`, `{"X-A":{"b":1,"b":2}}`,
			`{"X-A":"` + strings.Repeat("v", 8001) + `"}`, `{"` + strings.Repeat("N", 77) + `":"1"}`, `{` + strings.Join(headers, ",") + `}`},
		"unsubscribe_link": {`"ftp://example.test"`, `"mailto:"`, `"https://a b"`, `"https://example.test\r\nX: y"`, `"<https://example.test>"`},
		"to_object":        {`{"bucket":"b","name":"n","digest":"d"}`, `{"bucket":"b"}`, `"b"`},
		"on_unknown":       {`"retry"`, "0"},
		"give_up_at":       {`"10000-01-01T00:00:00Z"`, "7"},
	} {
		for _, value := range values {
			kinds = append(kinds, with(message("", 1), field, value))
		}
	}
	for _, object := range []string{`{"bucket":"b","bucket":"c","name":"n"}`,
		`{"bucket":"a.b","name":"n","digest":"SHA-256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU="}`,
		`{"bucket":"b","name":"n","digest":"SHA-256=x"}`, `{"nobody":1}`} {
		kinds = append(kinds, poison{body: `{"subject":"s","content":"c","to_object":` + object + `}`, field: "to_object"})
	}
	return append(kinds, poison{body: `{"to":"a@example.test","content":"c"}`, field: "subject"},
		poison{body: `{"subject":"s","content":"c"}`, field: "to"})
}

// hostileHeaders are what a careless or hostile producer may send along. The bodies are bad, so that each needs a dead letter.
func hostileHeaders() (kinds []poison) {
	body := `{"nobody":"` + payerMarker + `"}`
	add := func(name, id string, header ...string) {
		kinds = append(kinds, poison{name: name, body: body, field: "nobody", header: header, id: id})
	}
	for _, id := range []string{".", "*", ">", "..", "a b", "ü", strings.Repeat("x", 65), strings.Repeat("x", 10_000), "a.b", "$JS",
		"\x01\x7f", "\u202e\u200b", "\xff"} {
		add("Nats-Msg-Id "+id[:min(len(id), 70)], "", "Nats-Msg-Id: "+id)
	}
	add("Nats-Msg-Id null", "null", "Nats-Msg-Id: null")
	add("Nats-Msg-Id 7", "7", "Nats-Msg-Id:7")
	add("two Nats-Msg-Id", "first", "Nats-Msg-Id: first", "Nats-Msg-Id: second")
	add("a fitting Nats-Msg-Id", strings.Repeat("y", 64), "Nats-Msg-Id: "+strings.Repeat("y", 64))
	add("names that none of our clients would write", "", "X Spaced: 1", "Ü: 2", "\"q\": 3", "a\tb: 4", "\xff: 5", "X-\u200b: 6", "(c): 7",
		"X-Own: kept")
	add("values of all kinds", "", "X-A: \x00\x01\x7f", "X-B: \u2028\u202e\u200b", "X-C: \xff\xfe", "X-D:", "X-E:    ", "X-F: a: b; c")
	add("a header block without colon", "", "no colon here")
	add("an empty name", "", ": value")
	add("one of 60 KiB", "", "X-Long: "+strings.Repeat("v", 60<<10))
	add("all of 64 KiB", "", "X-Long: "+strings.Repeat("v", 32<<10),
		"Y-Long: "+strings.Repeat("v", 65535-len("NATS/1.0\r\nX-Long: \r\nY-Long: \r\n\r\n")-32<<10))
	add("a name of 60 KiB", "", strings.Repeat("n", 60<<10)+": v")
	var many []string
	for i := range 7000 {
		many = append(many, fmt.Sprintf("%d:%d", i, i%10))
	}
	add("7000 names", "", many...)
	same := make([]string, 10_000)
	for i := range same {
		same[i] = "X:1"
	}
	add("10000 of a name", "", same...)
	add("expectations that held for the request", "", "Nats-Expected-Stream: *", "nats-rollup: all", "NATS-TTL: 1s",
		"nats-expected-last-sequence: 1", "Nats-Required-Api-Level: 1")
	add("what the server writes", "", "Nats-Stream: X", "Nats-Sequence: 1", "Nats-Num-Pending: 1", "Nats-Last-Stream-Seq: 0",
		"Nats-Subject: x", "Nats-Marker-Reason: MaxAge")
	add("our headers, forged", "", "Errand-Reason: fine", "errand-writer: me", "Errand-Sequence: 1", "Errand-Request-Id: other",
		"Errand-Stream: other")
	add("forged CloudEvents", "", "ce-id: forged", "ce-type: forged", "ce-subject: forged", "ce-source: forged", "Ce-Id: forged",
		"content-type: text/html")
	add("a status and a body", "", "Status: 409", "Description: Consumer Deleted")
	for _, parent := range []string{"", "x", strings.Repeat("0", 10<<10), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\t",
		"ff-" + strings.Repeat("0", 32), "\u202e\xff\x00", "00-0AF7651916CD43DD8448EB211C80319C-B7AD6B7169203331-01"} {
		add("traceparent "+parent[:min(len(parent), 40)], "", "traceparent: "+parent, "tracestate: "+strings.Repeat("a=b,", 5000))
	}
	return kinds
}

func TestHostileHeadersBlockNothing(t *testing.T) {
	for _, q := range operations {
		for _, concurrency := range inshort.Choose(t, []int{2, 8}, []int{8}) {
			t.Run(fmt.Sprint(q.Requested(), " ", concurrency), func(t *testing.T) {
				kinds := hostileHeaders()
				for i, k := range kinds {
					for j, line := range k.header {
						kinds[i].header[j] = strings.Replace(line, "Nats-Expected-Stream: *", "Nats-Expected-Stream: "+q.queue.Stream, 1)
					}
				}
				wantRejected(t, q, concurrency, kinds)
			})
		}
	}
}

// An empty message with a Status header looks like a word of the server's on a pull, and
// the NATS library takes it for one: a few of them would take every pull there is.
func TestEmptyMessagesThatLookLikeTheServersOwnBlockNobody(t *testing.T) {
	for _, q := range operations {
		for _, concurrency := range []int{2, 8} {
			runInBubble(t, fmt.Sprint(q.Requested(), " ", concurrency), func(t *testing.T, b *bubble) {
				const bad, goods = 48, 5
				statuses := []string{"100", "400", "404", "408", "409", "503", payerMarker}
				for i := range bad {
					b.raw(q.Requested(), []string{"Status: " + statuses[i%len(statuses)], "Description: " + payerMarker + " Consumer Deleted"}, "")
				}
				b.request(q, "good-", goods)
				began := time.Now()
				logged := b.keepLogs()
				b.run(b.program(q, concurrency), time.Hour, b.published(q.Subject(q.succeeded, "*"), goods))
				took, n := time.Since(began), b.count(q.Subject(q.succeeded, "*"))
				errorIf(t, n != goods || took > 5*time.Minute, "%d of %d good ones answered, after %v", n, goods, took)
				equal(t, "bad requests reported", b.count(q.Subject("failed", "*")), bad)
				n = logged.count(payerMarker)
				errorIf(t, n != 0, "%d lines of the log hold data of a request", n)
			})
		}
	}
}
