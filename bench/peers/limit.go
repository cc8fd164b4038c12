package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/pkg/messages"
)

// limit shows what the machine can do: HTTP written by hand over one kept connection a worker, a subscription that
// prefetches, outcomes published without waiting for an answer, the request's bytes passed on without being decoded.
// It loses outcomes and calls twice whenever anything goes wrong.
type limit struct {
	peer `embed:""`
}

func (l *limit) Run(ctx context.Context) error {
	host := strings.TrimPrefix(l.Upstream, "http://")
	head := "POST /v3/mandates HTTP/1.1\r\nHost: " + host + "\r\nContent-Type: application/json\r\n" +
		"Authorization: Bearer token\r\nContent-Length: "
	return l.work(ctx, 8, func() func(jetstream.JetStream, jetstream.Msg) error {
		conn, err := net.Dial("tcp", host) // until the program ends
		from := bufio.NewReader(conn)
		var call, answer []byte
		return func(js jetstream.JetStream, m jetstream.Msg) error {
			if err != nil {
				return err
			}
			call = append(strconv.AppendInt(append(call[:0], head...), int64(len(m.Data())), 10), "\r\n\r\n"...)
			if _, err := conn.Write(append(call, m.Data()...)); err != nil {
				return err
			}
			if answer, err = readAnswer(from, answer); err != nil {
				return err
			}
			id := m.Headers().Get(nats.MsgIdHdr)
			event := append(append([]byte(`{"request_id":"`+id+`","answer":`), answer...), '}')
			return js.Conn().Publish(messages.Enroll.Subject(messages.Succeeded, id), event)
		}
	})
}

// readAnswer reads an answer's body into a buffer.
func readAnswer(from *bufio.Reader, buffer []byte) ([]byte, error) {
	length := -1
	for first := true; ; first = false {
		line, err := from.ReadSlice('\n')
		if err != nil {
			return nil, err
		}
		if first && !bytes.HasPrefix(line, []byte("HTTP/1.1 20")) {
			return nil, fmt.Errorf("upstream: %s", bytes.TrimSpace(line))
		}
		if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return nil, err
			}
		}
		if len(line) == len("\r\n") {
			break
		}
	}
	if length < 0 {
		return nil, errors.New("the answer has no Content-Length")
	}
	buffer = append(buffer[:0], make([]byte, length)...)
	_, err := io.ReadFull(from, buffer)
	return buffer, err
}
