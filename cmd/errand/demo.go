//go:build !nodemo

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"
)

// withDemo is what the build tag nodemo takes off the command line.
type withDemo struct {
	Demo demo `cmd:"" help:"Show it all on this machine: broker, sandbox, programs, one story."`
}

// demo shows the whole house at work.
//
//	house ─► broker, topology, sandbox, the three programs
//	story ─► what is asked for, and what must come of it
//	scene ─► what is seen of it: lines, a bar, a table
type demo struct {
	Stay    bool   `help:"Go on running until Ctrl-C, and say what to try next."`
	NATSURL string `name:"nats-url" placeholder:"URL" xor:"broker" help:"Use this NATS server instead of one of the demo's own. Nothing else may be at work there."`
	Store   string `placeholder:"DIR" xor:"broker" help:"Keep the data of the demo's own server here; left out: in a temporary folder that goes with it."`
	Verbose bool   `short:"v" help:"Show the programs' warnings."`
}

// demoPatience is how long the story may take; it takes about five seconds.
const demoPatience = 30 * time.Second

// Help is what --help says beside the flags.
func (*demo) Help() string {
	return `Starts a NATS server, the sandbox and the three programs in this process, on free ports of this machine, and shows what happens to two enrollments and two messages, one of them to 2,500 people. Exits 0 only if everything came out as it must.

Examples:

    errand demo
    errand demo --stay                # then use errand publish, errand watch or the nats tool beside it
    errand demo --stay --store ~/errand-demo
    errand demo --nats-url nats://127.0.0.1:4222

With --nats-url the streams are made on that server, and the demo's requests and events stay there: use one that is meant for trying things.`
}

// Run plays the demo.
func (d *demo) Run(ctx context.Context) error { return d.run(ctx, standard()) }

func (d *demo) run(ctx context.Context, c console) (err error) {
	log := zerolog.Nop()
	if d.Verbose {
		log = c.warnings()
	}
	h, err := d.open(ctx, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	fmt.Fprintf(c.out, "NATS      %s\nsandbox   %s/   %s/mail\nprograms  mandate-consumer, mail-consumer, log-poller\n\n", shown(h.nats), h.sandbox, h.sandbox)

	s := newStory(time.Now())
	view := newScene(c, s)
	err = d.play(h, s, view)
	view.finish()
	switch {
	case ctx.Err() != nil:
		return errors.New("interrupted before the end")
	case err == nil:
		err = h.fault()
	}
	if err != nil {
		return err
	}
	problems := s.check(h.truth(ctx))
	view.close(h, problems)
	if len(problems) > 0 {
		return fmt.Errorf("%d things did not come out as they must", len(problems))
	}
	if d.Stay {
		return d.stay(ctx, h, view)
	}
	fmt.Fprintln(c.out, "\nAll as it must be. The pages and the server end with the demo; errand demo --stay keeps them.")
	return nil
}

// play asks for everything and shows what comes of it, until all has been heard of
// or patience ends.
func (d *demo) play(h *house, s *story, view *scene) error {
	ctx, enough := context.WithTimeout(h.ctx, demoPatience)
	defer enough()
	f, err := follow(ctx, h.broker, everything, replay{})
	if err != nil {
		return err
	}
	defer f.stop()
	published := make(chan error, 1)
	go func() {
		err := s.publish(ctx, h)
		if err != nil {
			enough()
		}
		published <- err
	}()
	err = f.run(ctx, 0, func(e event) {
		s.tell(e)
		view.show(e)
		if s.complete() {
			enough()
		}
	})
	enough()
	return errors.Join(err, ended(ctx, <-published))
}

// stay goes on showing what happens until Ctrl-C.
func (d *demo) stay(ctx context.Context, h *house, view *scene) error {
	view.next(h)
	f, err := follow(h.ctx, h.broker, everything, replay{})
	if err != nil {
		return ended(ctx, err)
	}
	defer f.stop()
	if err := f.run(h.ctx, 0, view.show); err != nil {
		return err
	}
	if ctx.Err() == nil {
		return h.fault() // a program ended by itself
	}
	return nil
}
