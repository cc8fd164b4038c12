package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"slices"
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
	path, subject, batches := "/v3/mandates", messages.Enroll.Subject(messages.Succeeded, ""), whole
	if l.Operation == "send" {
		path, subject, batches = "/api/v0/messages", messages.Send.Subject(messages.Accepted, ""), cut
	}
	head := "POST " + path + " HTTP/1.1\r\nHost: " + host + "\r\nContent-Type: application/json\r\n" +
		"Authorization: Bearer token\r\nContent-Length: "
	from, call := bufio.NewReader(conn), []byte(nil)
	for {
		m, err := requests.Next()
		if err != nil {
			return err
		}
		var answer []byte
		for body := range batches(m.Data()) {
			call = append(strconv.AppendInt(append(call[:0], head...), int64(len(body)), 10), "\r\n\r\n"...)
			call = append(call, body...)
			if _, err := conn.Write(call); err != nil {
				return err
			}
			if answer, err = readAnswer(from, answer); err != nil {
				return err
			}
		}
		id := m.Headers().Get(nats.MsgIdHdr)
		event := append(append([]byte(`{"request_id":"`+id+`","answer":`), answer...), '}')
		if err := nc.Publish(subject+"."+id, event); err != nil {
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

// whole is a body as it came.
func whole(request []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) { yield(request) }
}

// cut makes a body for every thousand recipients, by their commas: there are no others in the list.
func cut(request []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		before, list, _ := bytes.Cut(request, []byte(`"to":[`))
		list, after, _ := bytes.Cut(list, []byte("]"))
		if bytes.Count(list, []byte(",")) < messages.MaxBatch {
			yield(request)
			return
		}
		for len(list) > 0 {
			end := 0
			for range messages.MaxBatch {
				next := bytes.IndexByte(list[end:], ',')
				if next < 0 {
					end = len(list) + 1
					break
				}
				end += next + 1
			}
			body := slices.Concat(before, []byte(`"to":[`), list[:end-1], []byte("]"), after)
			list = list[min(end, len(list)):]
			if !yield(body) {
				return
			}
		}
	}
}
