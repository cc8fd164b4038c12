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
	nc, _, source, err := l.connect(ctx)
	if err != nil {
		return err
	}
	defer nc.Close()
	requests, err := source.Messages(jetstream.PullMaxMessages(8 * l.Concurrency))
	if err != nil {
		return err
	}
	return l.run(ctx, nc, requests, func() error { return l.work(nc, requests) })
}

func (l *limit) work(nc *nats.Conn, requests jetstream.MessagesContext) error {
	host := strings.TrimPrefix(l.Upstream, "http://")
	conn, err := net.Dial("tcp", host)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // it was only read, or has failed
	head := "POST /v3/mandates HTTP/1.1\r\nHost: " + host + "\r\nContent-Type: application/json\r\n" +
		"Authorization: Bearer token\r\nContent-Length: "
	from := bufio.NewReader(conn)
	var call, answer []byte
	for {
		m, err := requests.Next()
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
		if err := nc.Publish(messages.Enroll.Subject(messages.Succeeded, id), event); err != nil {
			return err
		}
		if err := m.Ack(); err != nil {
			return err
		}
	}
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
