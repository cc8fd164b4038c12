package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"errand/pkg/messages"
)

// limit shows what the machine can do: HTTP over one kept connection for each request in flight, nothing decoded, outcomes published
// without waiting for an answer. It loses outcomes and calls twice whenever anything goes wrong.
type limit struct {
	peer `embed:""`
}

func (l *limit) Run(ctx context.Context) error {
	host := strings.TrimPrefix(l.Upstream, "http://")
	lines := make(chan *bufio.ReadWriter, l.Concurrency)
	for range l.Concurrency {
		conn, err := net.Dial("tcp", host) // until the program ends
		if err != nil {
			return err
		}
		lines <- bufio.NewReadWriter(bufio.NewReader(conn), bufio.NewWriter(conn))
	}
	return l.work(ctx, func(js jetstream.JetStream, id string, request []byte) error {
		line := <-lines
		defer func() { lines <- line }()
		fmt.Fprintf(line, "POST /v3/mandates HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"+
			"Authorization: Bearer token\r\nContent-Length: %d\r\n\r\n%s", host, len(request), request)
		if err := line.Flush(); err != nil {
			return err
		}
		response, err := http.ReadResponse(line.Reader, nil)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		answer, err := io.ReadAll(response.Body)
		if err != nil {
			return err
		}
		if response.StatusCode/100 != 2 {
			return fmt.Errorf("upstream: %s", response.Status)
		}
		return js.Conn().Publish(messages.Enroll.Subject(messages.Succeeded, id), fmt.Appendf(nil, `{"request_id":%q,"answer":%s}`, id, answer))
	})
}
