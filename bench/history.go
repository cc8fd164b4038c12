package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/retry"
	"errand/pkg/messages"
)

// history measures with more and more ids in the history.
func (g *growth) history(ctx context.Context, w workshop) (table string, err error) {
	s, err := w.open(ctx, "history", 1, "upstream")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	lines := [][]string{append(grownHead("ids before", "GB on disk"), "at rest")}
	if err := (requests{}).reset(ctx, s); err != nil {
		return "", err
	}
	pair, err := g.example(ctx, s)
	if err != nil {
		return "", err
	}
	have := 0
	for _, n := range g.IDs {
		if err := pair.fill(ctx, s, have, n); err != nil {
			return "", err
		}
		if have < n && !retry.Pause(ctx, dropsCaches) {
			return "", context.Cause(ctx)
		}
		have = n
		rest, err := s.memory()
		if err != nil {
			return "", err
		}
		disk, err := s.size(ctx, bus.MandateEvents)
		if err != nil {
			return "", err
		}
		var rounds []grown
		for i := range g.Rounds {
			prefix := fmt.Sprintf("h%d-%d", n, i)
			if err := (requests{}).publish(ctx, s.js, prefix, g.Requests); err != nil {
				return "", err
			}
			found, err := g.settle(ctx, s, prefix, 1)
			if err != nil {
				return "", err
			}
			rounds = append(rounds, found)
		}
		line := append([]string{fmt.Sprint(n), disk}, medians(rounds)...)
		lines = append(lines, append(line, fmt.Sprintf("%.0f", rest)))
		fmt.Println(lines[len(lines)-1])
	}
	return markdown(lines, 2), nil
}

// events are the two of one request, as errand has stored them.
type events [2]*nats.Msg

// exampleID is replaced by other ids of the same form. It is the first of its prefix.
const examplePrefix, exampleID = "00000000-0000-7000-8000-0000000000", examplePrefix + "-0"

// example has a consumer settle one request, and returns its events.
func (g *growth) example(ctx context.Context, s *stage) (pair events, err error) {
	if _, err := g.settle(ctx, s, examplePrefix, 1); err != nil {
		return pair, err
	}
	stream, err := s.js.Stream(ctx, bus.MandateEvents)
	if err != nil {
		return pair, err
	}
	for i, state := range []messages.State{messages.Started, messages.Succeeded} {
		m, err := stream.GetLastMsgForSubject(ctx, messages.Enroll.Subject(state, exampleID))
		if err != nil {
			return pair, err
		}
		maps.DeleteFunc(m.Header, func(name string, _ []string) bool {
			return strings.HasPrefix(name, "Nats-Expected-") // true of the first alone
		})
		pair[i] = &nats.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data}
	}
	return pair, nil
}

// of are the events of request n. Its id begins with a time, as many ids do, and ends with what looks random.
func (e events) of(n int) (pair events) {
	random := uint64(n+1) * 0x9e3779b97f4a7c15
	id := fmt.Sprintf("%08x-%04x-7%03x-8%03x-%012x", 0x0190f5fe+n>>16, n&0xffff, random>>52, random>>40&0xfff, random&0xffffffffffff)
	replaced := strings.NewReplacer(exampleID, id)
	for i, m := range e {
		pair[i] = &nats.Msg{Subject: replaced.Replace(m.Subject), Header: make(nats.Header, len(m.Header)),
			Data: []byte(replaced.Replace(string(m.Data)))}
		for name, values := range m.Header {
			pair[i].Header[name] = []string{replaced.Replace(values[0])}
		}
	}
	return pair
}

// fill stores the events of the requests from number first on. Every thousandth is waited for, so that the server is
// never more than a few thousands behind: what it cannot keep up with it would drop.
func (e events) fill(ctx context.Context, s *stage, first, last int) error {
	js, err := jetstream.New(s.nc, jetstream.WithPublishAsyncMaxPending(4))
	if err != nil {
		return err
	}
	stream, err := s.js.Stream(ctx, bus.MandateEvents)
	if err != nil {
		return err
	}
	want := stream.CachedInfo().State.Msgs + 2*uint64(last-first)
	for n := first; n < last && ctx.Err() == nil; n++ {
		pair := e.of(n)
		if err := s.nc.PublishMsg(pair[0]); err != nil {
			return err
		}
		if n%500 > 0 && n+1 < last {
			err = s.nc.PublishMsg(pair[1])
		} else {
			_, err = js.PublishMsgAsync(pair[1], jetstream.WithStallWait(time.Minute))
		}
		if err != nil {
			return err
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	info, err := stream.Info(ctx)
	if err == nil && info.State.Msgs != want {
		err = fmt.Errorf("%d events were stored, want %d", info.State.Msgs, want)
	}
	return err
}
