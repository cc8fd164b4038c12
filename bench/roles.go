package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"time"

	"errand/internal/devkit"
)

// server is the role of the NATS server. It keeps its data in a directory, prints its
// address and, for every line of input, the CPU time it has used so far in seconds, or for
// "memory" the bytes of memory that it needs. It ends with its input, not by a signal: after Ctrl-C the contestant still needs it to stop properly, and
// it must not stay behind if the bench is killed.
type server struct {
	Dir string `arg:"" help:"Directory of the data."`
}

func (s *server) Run() error {
	n, err := devkit.Start(s.Dir)
	if err != nil {
		return err
	}
	defer n.Close()
	fmt.Println(n.URL)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if lines.Text() == "memory" {
			var stats runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&stats)
			fmt.Println(stats.HeapAlloc)
			continue
		}
		used, err := ownCPU()
		if err != nil {
			return err
		}
		fmt.Println(strconv.FormatFloat(used.Seconds(), 'f', 6, 64))
	}
	return nil
}

// upstream is the role of the e-mandate service: it accepts any enrollment and answers
// after the latency. It ends with its input too.
type upstream struct {
	Latency time.Duration `help:"Time until an answer."`
}

// answer is the document's answer to an enrollment, without the order number, which would
// have to be that of the request.
const answer = `{"payer_name":"Test Payer","payer_id_type":1,"payer_id":"900101011234","payer_email":"payer@example.test",` +
	`"payer_telephone_number":"60190000000","amount":100,"application_type":"Enrollment",` +
	`"application_reason":"Enrollment for DD001","frequency_mode":"MT","effective_date":"2026-01-02",` +
	`"url":"https://mandate.example.test/intent/DD001"}`

func (u *upstream) Run() error { return serveUntilEOF(u) }

// serveUntilEOF serves h on a free port, prints the address, and ends with standard input.
func serveUntilEOF(h http.Handler) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s := http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }() // ends with Close
	fmt.Println("http://" + listener.Addr().String())
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = s.Close()
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return // the caller is gone
	}
	if u.Latency > 0 && !pause(r.Context(), u.Latency) {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, answer)
}

// pause reports whether d passed before ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
