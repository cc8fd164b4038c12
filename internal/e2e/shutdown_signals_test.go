package e2e

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"errand/internal/bus"
	"errand/internal/programs"
	"errand/internal/sandbox"
	"errand/pkg/messages"
)

// A call that is longer than AckWait and shorter than the grace, 25 s by default, ends in order, however
// often the program is asked to end.
func TestSignalsWaitForALongCall(t *testing.T) {
	in := install(t, "UPSTREAM_TIMEOUT=15s", "CONCURRENCY=2")
	in.latency(2 * ackWait)
	in.publishRequests(4)
	for _, c := range writes {
		for n, signals := range [][]os.Signal{{syscall.SIGTERM, syscall.SIGTERM}, {os.Interrupt, syscall.SIGTERM}} {
			p := in.start(c.program)
			in.until("a call", time.Minute, func() bool { return in.inFlight.Load() == 2 })
			p.expectEnd()
			for _, s := range signals {
				p.signal(s)
			}
			p.wantStatus(0, 15*time.Second)
			if !p.logged("stopped, nothing is left in flight") || in.inFlight.Load() != 0 {
				t.Errorf("%s ended before its call\n%s", c.program, p.lastOutput())
			}
			in.until("the acknowledgement", time.Minute, func() bool { return in.queue(c.queue).NumAckPending == 0 })
			in.wantOnce(c.queue, c.good(), c.call, 2*(n+1))
		}
	}
}

// A call that is longer than the grace is given up: the program says so, and another
// one finds out what became of the call as soon as its deadline has passed.
func TestGraceEndsACallThatIsTooLong(t *testing.T) {
	t.Parallel()
	for _, c := range writes {
		t.Run(c.program, func(t *testing.T) {
			in := install(t, "SHUTDOWN_GRACE=1s", "UPSTREAM_TIMEOUT=4s", "RETRY_TRIES=1")
			in.fault(sandbox.Fault{Operation: c.call, Kind: sandbox.DelayAnswer, Delay: sandbox.Duration(time.Hour)})
			in.publishRequests(1)
			p := in.start(c.program)
			in.until("a call", time.Minute, func() bool { return in.calls(c.call) == 1 })
			p.expectEnd()
			p.signal(syscall.SIGTERM)
			p.wantStatus(1, 3*time.Second+time.Second) // before the call's own time is over
			errorIf(t, !p.logged("SHUTDOWN_GRACE ended before"), "it does not say why:\n%s", p.lastOutput())
			began := time.Now()
			p = in.start(c.program, "SHUTDOWN_GRACE=20s")
			in.waitOutcomes(c.events(), 1, time.Minute)
			t.Logf("it ended %v later", time.Since(began).Round(time.Second/10))
			e := in.wantFinal(c.events())
			errorIf(t, e.state() != messages.Uncertain, "it ended as %s: %s", e.state(), e.Raw)
			in.until("an empty queue", time.Minute, func() bool { return in.unsettled(c.queue) == 0 && p.logged(`"message":"settled"`) })
			p.stop(10 * time.Second)
			equal(t, "calls", in.calls(c.call), 1)
		})
	}
}

// Asked to end before there is any work, a program ends well: there is no NATS yet, or it does not answer.
func TestSIGTERMWhileStarting(t *testing.T) {
	in := install(t)
	deaf := mute(t)
	for _, program := range everyProgram {
		for where, url := range map[string]string{"no NATS": "nats://127.0.0.1:1", "a NATS without an answer": "nats://" + deaf} {
			p := in.start(program, "NATS_URL="+url)
			in.until("it to start, with "+where, time.Minute, func() bool { return p.logged("admin server listens") })
			if where != "no NATS" {
				in.until("it to be connected", time.Minute, func() bool { _, page := p.get("/readyz"); return page == "starting: waiting for NATS\n" })
			}
			p.stop(10 * time.Second)
		}
	}
}

// mute is a NATS server that lets clients in and answers nothing but pings.
func mute(t *testing.T) (addr string) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	serve := func(c net.Conn) {
		defer c.Close()
		_, _ = fmt.Fprint(c, `INFO {"server_id":"mute","version":"2.15.0","headers":true,"max_payload":1048576,"proto":1}`+"\r\n")
		buffer := make([]byte, 4096)
		for {
			n, err := c.Read(buffer)
			if err != nil {
				return
			}
			if text := string(buffer[:n]); len(text) >= 6 && text[len(text)-6:] == "PING\r\n" {
				_, _ = fmt.Fprint(c, "PONG\r\n")
			}
		}
	}
	go func() { // ends with the listener; the connections end with their clients
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
	return listener.Addr().String()
}

// A list of recipients whose bytes are missing is waited for; a stop does not.
func TestSIGTERMWhileWaitingForAnObject(t *testing.T) {
	in := install(t, "SHUTDOWN_GRACE=10s") // a stop waits 2 s for the pulls that are under way
	m := in.listed("m1", 2)
	in.purge("OBJ_lists", "$O.lists.C.>")
	in.publish("mail.send.requested", m)
	p := in.start("mail-consumer")
	in.until("it to have taken it", time.Minute, func() bool { return in.queue(bus.SendQueue).Delivered.Consumer > 0 })
	p.stop(20 * time.Second)
	in.listed("m1", 2)
	p = in.start("mail-consumer")
	in.waitOutcomes("mail.send.*.m1", 1, time.Minute)
	e := in.wantFinal("mail.send.*.m1")
	errorIf(t, e.state() != messages.Accepted, "it ended as %s: %s", e.state(), e.Raw)
	p.stop(10 * time.Second)
}

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
