package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"time"
)

// upstream is the role of both services: it accepts any enrollment and any message, and answers after the latency. It
// looks at nothing but the path and the number of @ in the body, so that it takes little of the machine, and equally
// little for every caller.
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
	var body bytes.Buffer // made once: a new one for each long message would double the work
	for {
		call, err := http.ReadRequest(from)
		if err != nil {
			return // mostly the end of the connection; a contestant that sent nonsense misses its answer
		}
		body.Reset()
		if _, err := body.ReadFrom(call.Body); err != nil {
			return
		}
		ats := bytes.Count(body.Bytes(), []byte("@"))
		u.count(ats)
		if u.Latency > 0 {
			<-time.After(u.Latency)
		}
		status, answer := "201 Created", enrolled
		if strings.HasSuffix(call.URL.Path, "/messages") { // the sender's is not a recipient
			status, answer = "200 OK", fmt.Sprintf(`{"error":false,"status_code":200,"message":"OK","data":{"total_recipient":%d}}`, ats-1)
		}
		_, err = fmt.Fprintf(conn, "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", status, len(answer),
			answer)
		if err != nil {
			return
		}
	}
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
