package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// upstream is the role of both services: it accepts any enrollment and any message, and answers after the latency. It
// reads HTTP by hand and looks at nothing but the path and the number of @ in the body, so that it takes little of the machine, and
// equally little for every caller.
type upstream struct {
	Latency   time.Duration `help:"Time until an answer."`
	Authority string        `help:"Serve over TLS, and write to this file whom callers have to trust."`

	mu   sync.Mutex
	seen called
}

// called is what an upstream has seen.
type called struct {
	Calls, Ats int   // signs @ in all bodies: one for each address
	First      int64 // when the first call came; Unix time in nanoseconds
}

// authority is the file with an upstream's certificate.
const authority = "authority.pem"

// enrolled is the document's answer to an enrollment, without the order number, which would have to be the
// request's.
const enrolled = `{"payer_name":"Test Payer","payer_id_type":1,"payer_id":"900101011234","payer_email":"payer@example.test",` +
	`"payer_telephone_number":"60190000000","amount":100,"application_type":"Enrollment",` +
	`"application_reason":"Enrollment for DD001","frequency_mode":"MT","effective_date":"2026-01-02",` +
	`"url":"https://mandate.example.test/intent/DD001"}`

// Run prints the address and serves. It answers each line of standard input with what was seen; "reset" then forgets it.
func (u *upstream) Run() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }()
	scheme := "http://"
	if u.Authority != "" {
		certified := httptest.NewTLSServer(nil)
		defer certified.Close()
		certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certified.Certificate().Raw})
		if err := os.WriteFile(u.Authority, certificate, 0o600); err != nil {
			return err
		}
		scheme, listener = "https://", tls.NewListener(listener, certified.TLS)
	}
	go func() { // ends with the listener
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go u.serve(conn) // ends with the process
		}
	}()
	fmt.Println(scheme + listener.Addr().String())
	out := json.NewEncoder(os.Stdout)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		u.mu.Lock()
		seen := u.seen
		if lines.Text() == "reset" {
			u.seen = called{}
		}
		u.mu.Unlock()
		if err := out.Encode(seen); err != nil {
			return err
		}
	}
	return nil
}

// serve answers the calls on a connection, one after the other.
func (u *upstream) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }() // its caller sees what it got
	from := bufio.NewReaderSize(conn, 32<<10)
	timer := time.NewTimer(0)
	<-timer.C
	for {
		path, ats, err := readCall(from)
		if err != nil {
			return // mostly the end of the connection; a contestant that sent nonsense misses its answer
		}
		u.count(ats)
		if u.Latency > 0 {
			timer.Reset(u.Latency)
			<-timer.C
		}
		status, body := "201 Created", enrolled
		if strings.HasSuffix(path, "/messages") { // the sender's is not a recipient
			status, body = "200 OK", fmt.Sprintf(`{"error":false,"status_code":200,"message":"OK","data":{"total_recipient":%d}}`, ats-1)
		}
		_, err = fmt.Fprintf(conn, "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", status, len(body), body)
		if err != nil {
			return
		}
	}
}

// readCall reads a POST and returns its path and the number of @ in its body.
func readCall(from *bufio.Reader) (path string, ats int, err error) {
	length := -1
	for {
		line, err := from.ReadSlice('\n')
		if err != nil {
			return "", 0, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			break
		}
		if path == "" {
			words := strings.Fields(string(line))
			if len(words) != 3 || words[0] != "POST" {
				return "", 0, fmt.Errorf("not a POST: %s", line)
			}
			path = words[1]
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		if bytes.EqualFold(name, []byte("Content-Length")) {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return "", 0, err
			}
		}
	}
	if path == "" || length < 0 {
		return "", 0, errors.New("a call without a path or a length")
	}
	for length > 0 {
		part, err := from.Peek(min(length, from.Size()))
		if err != nil {
			return "", 0, errors.Join(err, io.ErrUnexpectedEOF)
		}
		ats += bytes.Count(part, []byte("@"))
		length -= len(part)
		_, _ = from.Discard(len(part)) // it is in the buffer
	}
	return path, ats, nil
}

func (u *upstream) count(ats int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.seen.Calls == 0 {
		u.seen.First = time.Now().UnixNano()
	}
	u.seen.Calls++
	u.seen.Ats += ats
}
