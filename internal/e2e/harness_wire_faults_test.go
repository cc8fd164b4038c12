package e2e

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode/utf16"
)

// lineFault is one fault and what is known of the call after it.
type lineFault struct {
	name   string
	done   bool   // the sandbox does the work
	reason string // no_answer, bad_answer: nobody knows; busy: nothing happened; refused; "" means that it went well
	fault  fault
}

// elsewhere is a host that answers point to and that nobody may follow them to.
const elsewhere = "http://upstream.stranger.test"

// lineFaults are all ways of a call to go wrong after it got its connection.
func lineFaults() []lineFault {
	faults := append(lineCuts(), lineGibberish()...)
	faults = append(faults, lineBodies()...)
	faults = append(faults, lineStatuses()...)
	return faults
}

// lineCuts end or stall the connection at every place of a call.
func lineCuts() []lineFault {
	return []lineFault{
		{"reset before the body is read", false, "no_answer", func(c *call) bool { return c.reset() }},
		{"reset in the middle of the request", false, "no_answer", func(c *call) bool { c.read(c.ContentLength / 2); return c.reset() }},
		{"reset after the whole request", false, "no_answer", func(c *call) bool { c.read(-1); return c.reset() }},
		{"reset after the work", true, "no_answer", func(c *call) bool { c.work(); return c.reset() }},
		{"reset in the answer's status line", true, "no_answer", func(c *call) bool { c.work(); c.say("HTTP/1.1 2"); return c.reset() }},
		{"reset in the answer's header", true, "no_answer",
			func(c *call) bool { c.say(c.work().head("Content-Length: 1")[:40]); return c.reset() }},
		{"reset in the answer's body", true, "no_answer", func(c *call) bool { a := c.work().with(""); c.say(a[:len(a)-20]); return c.reset() }},
		{"closed without an answer", false, "no_answer", func(c *call) bool { c.read(-1); return false }},
		{"closed in the answer's body", true, "no_answer", func(c *call) bool { a := c.work().with(""); c.say(a[:len(a)-1]); return false }},
		{"swallowed before it is read", false, "no_answer", func(c *call) bool { return c.silence() }},
		{"swallowed without work", false, "no_answer", func(c *call) bool { c.read(-1); return c.silence() }},
		{"swallowed after the work", true, "no_answer", func(c *call) bool { c.work(); return c.silence() }},
		{"silence in the answer's body", true, "no_answer",
			func(c *call) bool { a := c.work().with(""); c.say(a[:len(a)-1]); return c.silence() }},
		{"an answer of one byte a second", true, "no_answer", func(c *call) bool {
			a := c.work().with("")
			return c.trickle(a, len(a), time.Duration(len(a))*time.Second)
		}},
		{"a slow answer that fits", true, "", func(c *call) bool { return c.trickle(c.work().with(""), 25, 25*time.Second) }},
		{"a late answer that fits", true, "", func(c *call) bool { a := c.work(); time.Sleep(29 * time.Second); return c.say(a.with("")) }},
	}
}

// says is a fault that does the work and says something else about it.
func says(text func(answer) string) fault {
	return func(c *call) bool { return c.say(text(c.work())) && false }
}

// lineGibberish breaks the rules of HTTP.
func lineGibberish() []lineFault {
	fixed := func(text string) fault { return says(func(answer) string { return text }) }
	return []lineFault{
		{"gibberish", true, "no_answer", fixed("\x00\x01\x02 who is there?\r\n\r\n")},
		{"HTTP/0.9", true, "no_answer", says(func(a answer) string { return a.body })},
		{"another protocol", true, "no_answer", fixed("220 smtp.example.test ESMTP\r\n")},
		{"HTTP/2 without being asked", true, "no_answer", fixed("\x00\x00\x12\x04\x00\x00\x00\x00\x00")},
		{"a line break", true, "no_answer", fixed("\r\n")},
		{"endless headers", true, "no_answer", func(c *call) bool {
			c.work()
			c.say("HTTP/1.1 200 OK\r\n")
			return c.forever("X-More: " + strings.Repeat("x", 1000) + "\r\n")
		}},
		{"a flood of 1xx", true, "no_answer", func(c *call) bool {
			c.work()
			return c.forever("HTTP/1.1 103 Early Hints\r\nLink: <" + elsewhere + ">\r\n\r\n")
		}},
		{"some 1xx before the answer", true, "", says(func(a answer) string {
			return strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n", 3) + a.with("Connection: close\r\n")
		})},
		{"switched protocols", true, "no_answer", fixed("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")},
		{"a chunk without size", true, "no_answer", says(func(a answer) string { return a.head("Transfer-Encoding: chunked\r\n") + a.body })},
		{"a chunk longer than it is", true, "no_answer", says(func(a answer) string {
			return a.head("Transfer-Encoding: chunked\r\n") + fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(a.body)+7, a.body)
		})},
		{"no last chunk", true, "no_answer", says(func(a answer) string {
			return a.head("Transfer-Encoding: chunked\r\n") + fmt.Sprintf("%x\r\n%s\r\n", len(a.body), a.body)
		})},
		{"endless chunks", true, "bad_answer", func(c *call) bool {
			c.say(c.work().head("Transfer-Encoding: chunked\r\n"))
			return c.forever("1000\r\n" + strings.Repeat(" ", 0x1000) + "\r\n")
		}},
		{"Content-Length too long", true, "no_answer", says(func(a answer) string {
			return a.head(fmt.Sprintf("Content-Length: %d\r\n", len(a.body)+1)) + a.body
		})},
		{"Content-Length too short", true, "bad_answer", says(func(a answer) string {
			return a.head(fmt.Sprintf("Content-Length: %d\r\n", len(a.body)-1)) + a.body
		})},
		{"Content-Length below nothing", true, "no_answer", says(func(a answer) string { return a.head("Content-Length: -1\r\n") + a.body })},
		{"two Content-Lengths", true, "no_answer", says(func(a answer) string { return a.with("Content-Length: 1\r\n") })},
		{"an immense Content-Length", true, "bad_answer",
			says(func(a answer) string { return a.head("Content-Length: 9223372036854775807\r\n") + a.body })},
	}
}

// lineBodies come with a success and good framing.
func lineBodies() []lineFault {
	body := func(lines string, change func(string) string) fault {
		return says(func(a answer) string { a.body = change(a.body); return a.with(lines) })
	}
	fixed := func(text string) fault { return body("", func(string) string { return text }) }
	return []lineFault{
		{"HTML with 200", true, "bad_answer", fixed("<html><body>All is well.</body></html>")},
		{"nothing with 200", true, "bad_answer", fixed("")},
		{"a list instead of an object", true, "bad_answer", fixed("[]")},
		{"an empty object", true, "bad_answer", fixed("{}")},
		{"half of the JSON", true, "bad_answer", body("", func(b string) string { return b[:len(b)/2] })},
		{"two answers in one body", true, "bad_answer", body("", func(b string) string { return b + b })},
		{"two answers", true, "", func(c *call) bool { a := c.work().with(""); return c.say(a + a) }},
		{"gzip unasked", true, "bad_answer", body("Content-Encoding: gzip\r\n", func(b string) string {
			var out bytes.Buffer
			z := gzip.NewWriter(&out)
			z.Write([]byte(b))
			z.Close()
			return out.String()
		})},
		{"UTF-16", true, "bad_answer", body("", func(b string) string {
			out := []byte{0xff, 0xfe}
			for _, u := range utf16.Encode([]rune(b)) {
				out = append(out, byte(u), byte(u>>8))
			}
			return string(out)
		})},
		{"invalid UTF-8", true, "bad_answer", body("", func(b string) string { return strings.Replace(b, `":`, "\xff\":", 1) })},
		{"a huge answer", true, "bad_answer", body("", func(b string) string { return b + strings.Repeat(" ", 20<<20) })},
		{"an endless answer", true, "bad_answer", func(c *call) bool {
			c.say(c.work().head(""))
			return c.forever(strings.Repeat(" ", 0x10000))
		}},
		{"pointing elsewhere in every header", true, "", says(func(a answer) string {
			return a.with("Connection: close\r\nLocation: " + elsewhere + "\r\nContent-Location: " + elsewhere + "\r\nRefresh: 0; url=" + elsewhere +
				"\r\nLink: <" + elsewhere + ">; rel=\"next preconnect\"\r\nAlt-Svc: h2=\"upstream.stranger.test:443\"\r\n")
		})},
	}
}

// lineStatuses are answers other than success; nothing says whether the work is done.
func lineStatuses() (faults []lineFault) {
	add := func(status int, done bool, reason, lines, body string) {
		name := fmt.Sprintf("%d, done: %t", status, done)
		faults = append(faults, lineFault{name, done, reason, func(c *call) bool {
			if done {
				c.work()
			}
			c.read(-1)
			return c.say(answer{status, "text/html", body}.with(lines))
		}})
	}
	for i, status := range []int{300, 301, 302, 303, 304, 305, 307, 308} {
		body := "<a href=" + elsewhere + ">there</a>"
		if status == http.StatusNotModified {
			body = ""
		}
		add(status, i%2 == 0, "no_answer", "Location: "+elsewhere+"/v3/mandates\r\n", body)
	}
	for i, status := range []int{500, 500, 502, 504, 520, 999} {
		add(status, i%2 == 0, "no_answer", "", "<html>oops</html>")
	}
	for _, status := range []int{408, 425, 429, 503} {
		add(status, false, "busy", "", "<html>later</html>")
	}
	for _, status := range []int{400, 410, 422} {
		add(status, false, "refused", "", "<html>no</html>")
	}
	return append(faults,
		lineFault{"503 without end", false, "busy", func(c *call) bool {
			c.read(-1)
			c.say(answer{503, "text/html", ""}.head(""))
			return c.forever(strings.Repeat(" ", 0x10000))
		}},
		lineFault{"503 cut in its body", false, "no_answer", func(c *call) bool {
			c.read(-1)
			c.say(answer{503, "text/html", ""}.head("Content-Length: 9\r\n"))
			return c.reset()
		}},
		lineFault{"500 that repeats the request", false, "no_answer", func(c *call) bool {
			c.read(-1)
			return c.say(answer{500, "text/plain", fmt.Sprintf("in the debugger: %v", c.Header)}.with(""))
		}},
		lineFault{"422 that repeats the request", false, "refused", func(c *call) bool {
			c.read(-1)
			return c.say(answer{422, "text/plain", fmt.Sprintf("in the debugger: %v", c.Header)}.with(""))
		}})
}
