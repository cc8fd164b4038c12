package main

import (
	"cmp"
	"context"
	"os"
	"os/user"
	"strings"

	"errand/internal/oncall/act"
	"errand/internal/programs"
)

// acting has the flags of a command that changes something.
type acting struct {
	NATS access `embed:"" group:"nats"`
	Why  string `placeholder:"REASON" help:"Why; kept for 400 days and not removable: no personal data."`
	As   string `env:"ERRAND_AS" placeholder:"NAME" help:"Who does it; default: the NATS user or this machine's."`
}

var noReason = invalid("--why", "is required, for example --why 'the quota was raised'")

// do connects a command that acts, once it has a reason, and calls work with who acts.
func (a acting) do(ctx context.Context, name string, c console, work func(act.Person) error) error {
	if strings.TrimSpace(a.Why) == "" {
		return noReason
	}
	return a.connected(ctx, name, c, work)
}

// connected is do for what may change nothing, and then needs no reason.
func (a acting) connected(ctx context.Context, name string, c console, work func(act.Person) error) error {
	b, err := a.NATS.open(ctx, name, c)
	if err != nil {
		return err
	}
	defer b.nc.Close()
	person, err := a.named(b, cmp.Or(a.As, b.nc.Opts.User, loggedIn()))
	if err != nil {
		return err
	}
	return b.unanswered(work(person))
}

func (a acting) named(b broker, name string) (act.Person, error) {
	person, err := act.As(name, "errand "+programs.Version(), b.nc, b.js)
	if err != nil {
		return person, invalid("--as (ERRAND_AS)", "must be a name, got %q", name)
	}
	return person, nil
}

// loggedIn returns the user of this machine, "" if it has none.
func loggedIn() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return os.Getenv("USER")
}
