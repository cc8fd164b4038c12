package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"errand/internal/bus"
	"errand/internal/bus/natscontext"
	"errand/internal/oncall/act"
	"errand/internal/oncall/inspect"
	"errand/internal/programs"
	"errand/internal/retry"
)

type access struct{ natscontext.Options }

func (a access) open(ctx context.Context, name string, c console) (broker, error) {
	to, err := a.Resolve()
	if err != nil {
		return broker{}, invalid("NATS_CONTEXT", "%v", err)
	}
	return connect(ctx, to, name, c.warnings())
}

// with opens a connection for work, and says what an error of the server means.
func (a access) with(ctx context.Context, name string, c console, work func(b broker) error) error {
	b, err := a.open(ctx, name, c)
	if err != nil {
		return err
	}
	defer b.Conn.Close()
	return b.unanswered(work(b))
}

// connectWait is how long a command waits for a server.
const connectWait = 5 * time.Second

// broker is a command's connection.
type broker struct{ inspect.Reader }

// connect opens a connection for a command. Unlike a program, a command gives up and names the servers that did not answer.
func connect(ctx context.Context, to bus.Connection, name string, log zerolog.Logger) (broker, error) {
	if err := to.Validate(); err != nil {
		return broker{}, invalid("NATS", "%s", err.Error())
	}
	nc, err := bus.Connect(to, "errand-"+name, log)
	if err != nil {
		return broker{}, invalid("NATS", "%s", err.Error())
	}
	waiting, stop := context.WithTimeout(ctx, connectWait)
	defer stop()
	if err := bus.Up(waiting, nc, zerolog.Nop()); err != nil {
		last := nc.LastError()
		nc.Close()
		if ctx.Err() != nil {
			return broker{}, err
		}
		switch {
		case last == nil:
			last = errors.New("no answer")
		case bus.Refused(last):
			return broker{}, fmt.Errorf("NATS at %s does not authorize this user: are NATS_USER and its password, key or credentials right? %w",
				strings.Join(to.Servers(), ","), last)
		}
		return broker{}, fmt.Errorf("no NATS server at %s (NATS_URL, --nats-url): %w", strings.Join(to.Servers(), ","), last)
	}
	js, err := bus.JetStream(ctx, nc)
	if err != nil {
		nc.Close()
		return broker{}, err
	}
	return broker{inspect.Reader{Conn: nc, JS: js}}, nil
}

// unreadable says what to do about a missing stream. A service must not run errand provision, which would create errand's
// queues in the service's account.
func unreadable(err error) error {
	return fmt.Errorf("%w: a service runs `errand mirror` first, errand's own provisioner `errand provision`", err)
}

// read connects a command that only reads, and shows what it finds once, or again and again with --watch.
func (o output) read(ctx context.Context, command string, c console, find func(b broker, now time.Time) (listing, error)) error {
	return o.NATS.with(ctx, command, c, func(b broker) error {
		for {
			l, err := find(b, time.Now())
			if err != nil {
				return ended(ctx, err)
			}
			if o.Watch && c.redraws {
				fmt.Fprint(c.out, "\x1b[H\x1b[2J")
			}
			o.show(c, l)
			if !o.Watch {
				return l.failed
			}
			if !retry.Pause(ctx, watchEvery) {
				return nil
			}
		}
	})
}

const watchEvery = 2 * time.Second

// unanswered adds to an error of the server what it means for a user.
func (b broker) unanswered(err error) error {
	switch last := b.Conn.LastError(); {
	case errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("%w: the account of this user has no JetStream, or it may not do that; is NATS_USER right?", err)
	case errors.Is(err, context.DeadlineExceeded) && errors.Is(last, nats.ErrPermissionViolation):
		return fmt.Errorf("%w: this user may not do that; is NATS_USER right? %w", err, last)
	case errors.Is(err, bus.ErrNoStream), errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, jetstream.ErrConsumerNotFound):
		return fmt.Errorf("%w: is NATS_USER in errand's account? Then it is lost: errand provision --dry-run shows what is missing. Before it "+
			"is created again, see docs/on-call/disaster.md", err)
	}
	return err
}

// quiet runs a function that asks for something this user may lack permission for: the server does not answer then, and
// its report to the connection is not shown.
func (b broker) quiet(ask func()) {
	before := b.Conn.ErrorHandler()
	b.Conn.SetErrorHandler(func(nc *nats.Conn, sub *nats.Subscription, err error) {
		if !errors.Is(err, nats.ErrPermissionViolation) {
			before(nc, sub, err)
		}
	})
	defer b.Conn.SetErrorHandler(before)
	ask()
}

// acting has the flags of a command that changes something.
type acting struct {
	NATS access `embed:"" group:"nats"`
	Why  string `placeholder:"REASON" help:"Why; kept for 400 days and not removable: no personal data."`
	As   string `env:"ERRAND_AS" placeholder:"NAME" help:"Who does it; default: the NATS user or this machine's."`
}

// do connects a command and calls work with who acts. One that changes something needs a reason.
func (a acting) do(ctx context.Context, name string, c console, changes bool, work func(act.Person) error) error {
	if changes && strings.TrimSpace(a.Why) == "" {
		return invalid("--why", "is required, for example --why 'the quota was raised'")
	}
	return a.NATS.with(ctx, name, c, func(b broker) error {
		as := cmp.Or(a.As, b.Conn.Opts.User, loggedIn())
		person, err := act.As(as, "errand "+programs.Version(), b.Conn, b.JS)
		if err != nil {
			return invalid("--as (ERRAND_AS)", "must be a name, got %q", as)
		}
		return work(person)
	})
}

// loggedIn returns the user of this machine, "" if it has none.
func loggedIn() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return os.Getenv("USER")
}
