package e2e

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"errand/internal/programs"
)

// muting dials the server without a network. While it is mute neither side hears the other, and both are connected.
type muting struct {
	inProcess
	mute *atomic.Bool
}

func (d muting) Dial(network, address string) (net.Conn, error) {
	c, err := d.inProcess.Dial(network, address)
	if err != nil {
		return nil, err
	}
	return mutedConn{c, d.mute}, nil
}

type mutedConn struct {
	net.Conn
	mute *atomic.Bool
}

func (c mutedConn) Read(b []byte) (n int, err error) {
	for n, err = c.Conn.Read(b); err == nil && c.mute.Load(); {
		n, err = c.Conn.Read(b)
	}
	return n, err
}

func (c mutedConn) Write(b []byte) (int, error) {
	if c.mute.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// Whatever a program waits for when it is to stop, without NATS it ends within its grace and a second. Gone: the connection
// is lost; mute: it is not, and nothing is answered. Busy: calls are under way, whose outcomes cannot be stored.
func TestAStopWithoutNATSEndsWithinTheGrace(t *testing.T) {
	const grace = 3 * time.Second
	every := map[string]func(*bubble) (programs.Program, *programs.Common){
		"mandate-consumer":   func(b *bubble) (programs.Program, *programs.Common) { p := b.mandates(); return p, &p.Common },
		"mail-consumer":      func(b *bubble) (programs.Program, *programs.Common) { p := b.mails(); return p, &p.Common },
		"log-poller":         func(b *bubble) (programs.Program, *programs.Common) { p := b.poller(); return p, &p.Common },
		"transaction-poller": func(b *bubble) (programs.Program, *programs.Common) { p := b.transactions(); return p, &p.Common },
	}
	test := func(name, fault string, busy bool, after time.Duration) {
		runInBubble(t, fmt.Sprint(name, " busy ", busy, " ", fault, " for ", after), func(t *testing.T, b *bubble) {
			program, common := every[name](b)
			mute := &atomic.Bool{}
			common.ShutdownGrace, common.NATS.Dialer = grace, muting{inProcess{b.nats}, mute}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- program.Run(ctx) }()
			b.otherMail()
			time.Sleep(11 * time.Second)
			if busy {
				b.latency(15 * time.Second)
				b.publish("mandate.enroll.requested", enrollment("r1"))
				b.publish("mail.send.requested", message("m1", 3))
				time.Sleep(time.Second)
			}
			if mute.Store(fault == "mute"); fault == "gone" {
				b.nats.Stop()
			}
			time.Sleep(after)
			began := time.Now()
			stop()
			err := <-ended
			took := time.Since(began)
			t.Logf("%v: %v", took, err)
			errorIf(t, took > grace+time.Second, "it ended after %v: %v\n%s", took, err, b.logs)
			errorIf(t, fault == "gone" && busy != (err != nil), "it ended with %v\n%s", err, b.logs)
		})
	}
	for _, fault := range []string{"gone", "mute"} {
		for _, after := range []time.Duration{time.Second, 4 * time.Second, 9 * time.Second} {
			for name := range every {
				test(name, fault, false, after)
			}
			test("mandate-consumer", fault, true, after)
			test("mail-consumer", fault, true, after)
		}
	}
}
