//go:build !nodemo

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"errand/internal/bus"
	"errand/internal/programs"
	"errand/internal/sandbox"
	"errand/internal/sandbox/devkit"
	"errand/pkg/messages"
)

// installation is everything that runs: NATS, both upstreams, the programs.
type installation struct {
	ctx      context.Context // ends with the demo, and when a part fails
	end      context.CancelCauseFunc
	broker   broker
	nats     string // URL
	box      *sandbox.Sandbox
	sandbox  string // its base URL
	cleanups []func() error
}

// open starts the parts of the installation in order.
func (d *demo) open(ctx context.Context, log zerolog.Logger) (_ *installation, err error) {
	h := &installation{}
	ctx, h.end = context.WithCancelCause(ctx)
	h.ctx = ctx
	defer func() {
		if err != nil {
			_ = h.close() // err is the cause
		}
	}()
	server, err := devkit.Start(d.Store)
	if err != nil {
		return nil, err
	}
	h.cleanups, h.nats = append(h.cleanups, func() error { server.Close(); return nil }), server.URL
	if h.broker, err = connect(ctx, bus.Connection{URL: h.nats}, "demo", log); err != nil {
		return nil, err
	}
	h.cleanups = append(h.cleanups, func() error { h.broker.Conn.Close(); return nil })
	if err := h.createMissing(ctx); err != nil {
		return nil, err
	}
	// The programs end before the sandbox that they call, and both before the NATS server.
	below, endBelow := context.WithCancel(context.WithoutCancel(ctx))
	serving := make(chan struct{})
	h.runPart(endBelow, "sandbox", func() error {
		return sandbox.Serve(below, "127.0.0.1:0", sandbox.Options{ChecksumSecret: demoChecksum, Settings: demoSettings(), Seed: 1},
			func(s *sandbox.Sandbox, base string) { h.box, h.sandbox = s, base; close(serving) })
	})
	select {
	case <-serving:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	programs, err := h.programs(log)
	if err != nil {
		return nil, err
	}
	for name, program := range programs {
		h.runPart(func() {}, name, func() error { return program.Run(ctx) })
	}
	return h, nil
}

// runPart runs a part in the background. If it fails or ends by itself, the installation ends. Closing the installation
// stops the part and waits for it.
func (h *installation) runPart(stop func(), name string, run func() error) {
	ended := make(chan error, 1)
	go func() { // waited for in the cleanup
		err := run()
		if err == nil && h.ctx.Err() == nil {
			err = errors.New("ended by itself")
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
		h.end(err)
		ended <- err
	}()
	h.cleanups = append(h.cleanups, func() error { stop(); return <-ended })
}

// close stops all parts in reverse order, and returns what failed.
func (h *installation) close() (err error) {
	h.end(nil)
	for _, cleanup := range slices.Backward(h.cleanups) {
		err = errors.Join(err, cleanup())
	}
	return err
}

// demoChecksum is the secret of callbacks' checksums.
const demoChecksum = "demo-checksum-secret"

// programs returns the programs with mostly default settings.
func (h *installation) programs(log zerolog.Logger) (map[string]programs.Program, error) {
	free, err := devkit.Addresses(1)
	if err != nil {
		return nil, err
	}
	callbacks := free[0]
	secrets, checksum := programs.CallbackSecrets{CallbackSecret: rand.Text() + rand.Text()}, programs.Checksum{ChecksumSecret: demoChecksum}
	common := programs.Common{Base: programs.Base{NATS: bus.Connection{URL: h.nats}, AdminAddr: "off", ShutdownGrace: 5 * time.Second,
		Logger: &log},
		UpstreamTimeout: 5 * time.Second, RetryFirst: 100 * time.Millisecond, RetryMax: 2 * time.Second, RetryTries: 5}
	requests := programs.Requests{Concurrency: 64, GiveUpAfter: 24 * time.Hour,
		Lanes: programs.Lanes{{Name: messages.DefaultLane, Weight: 4}, {Name: demoLane, Weight: 1}}}
	mandates := programs.MandateAPI{APIURL: h.sandbox, APIVersion: "v3", APIToken: "demo-token", PortalKey: "demo-portal", Checksum: checksum,
		ChecksumAmount: "shortest", Timezone: "Asia/Kuala_Lumpur"}
	mail := programs.MailAPI{APIURL: h.sandbox, APIKey: "demo-key"}
	return map[string]programs.Program{
		"mandate-consumer": &programs.MandateConsumer{Common: common, Requests: requests, MandateAPI: mandates, ListSettle: 5 * time.Second,
			Callbacks: programs.Callbacks{CallbackURL: "http://" + callbacks, CallbackSecrets: secrets}},
		"transaction-poller": &programs.TransactionPoller{Common: common, MandateAPI: mandates, Interval: 30 * time.Second,
			FullInterval: 24 * time.Hour},
		"callback-receiver": &programs.CallbackReceiver{Base: common.Base, CallbackSecrets: secrets, Checksum: checksum, Listen: callbacks},
		"mail-consumer": &programs.MailConsumer{Common: common, Requests: requests, MailAPI: mail, BatchSize: 1000, BatchParallel: 4,
			SuppressBounced: programs.Period{Duration: 30 * 24 * time.Hour}},
		"log-poller": &programs.LogPoller{Common: common, MailAPI: mail,
			Interval: 300 * time.Millisecond, Limit: 1000, Overlap: 15 * time.Minute, ReportAfter: 72 * time.Hour},
	}, nil
}

// demoSettings make the mail of the demo arrive one after the other within seconds.
func demoSettings() *sandbox.Settings {
	v := sandbox.DefaultSettings()
	v.Latency = sandbox.Duration(20 * time.Millisecond)
	v.CallbackWait = sandbox.Duration(500 * time.Millisecond)
	v.LogDelay = sandbox.Duration(500 * time.Millisecond)
	v.LogSpread = sandbox.Duration(2 * time.Second)
	v.DeferredFor = sandbox.Duration(1500 * time.Millisecond)
	return &v
}

// demoLane is the lane of the long list.
const demoLane = "bulk"

// createMissing creates missing streams, consumers and lanes, and does not change existing ones.
func (h *installation) createMissing(ctx context.Context) error {
	plan, err := bus.Plan(ctx, h.broker.JS, bus.Limits{MaxPayload: h.broker.Conn.MaxPayload(), Lanes: []string{demoLane}})
	if err != nil {
		return err
	}
	plan = slices.DeleteFunc(plan, func(c bus.Change) bool { return !c.Adds() })
	return bus.Apply(ctx, plan, false, func(bus.Change) {})
}
