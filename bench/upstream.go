package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// upstream is the role of both services: it accepts any enrollment and any message, and answers after the latency. It
// reads HTTP by hand and looks at nothing but the length and the number of @ in the body, so that it takes little of
// the machine, and equally little for every caller.
type upstream struct {
	Latency   time.Duration `help:"Time until an answer."`
	Authority string        `help:"Serve over TLS, and write to this file whom callers have to trust."`

	calls, ats, first atomic.Int64
}

// authority is the file with an upstream's certificate.
const authority = "authority.pem"

// enrolled is the document's answer to an enrollment, without the order number, which would have to be the
// request's.
const enrolled = `{"payer_name":"Test Payer","payer_id_type":1,"payer_id":"900101011234","payer_email":"payer@example.test",` +
	`"payer_telephone_number":"60190000000","amount":100,"application_type":"Enrollment",` +
	`"application_reason":"Enrollment for DD001","frequency_mode":"MT","effective_date":"2026-01-02",` +
	`"url":"https://mandate.example.test/intent/DD001"}`

// Run prints the address and serves; the question "reset" forgets what was seen.
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
	return answer(func(question string) called {
		seen := called{Calls: u.calls.Load(), Ats: u.ats.Load(), First: u.first.Load()}
		if question == "reset" {
			u.calls.Store(0)
			u.ats.Store(0)
			u.first.Store(0)
		}
		return seen
	})
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
		if u.calls.Add(1) == 1 {
			u.first.Store(time.Now().UnixNano())
		}
		u.ats.Add(int64(ats))
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
