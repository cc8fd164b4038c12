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

// open connects a command that acts. It requires a reason first.
func (a acting) open(ctx context.Context, name string, c console) (broker, act.Person, error) {
	if strings.TrimSpace(a.Why) == "" {
		return broker{}, act.Person{}, noReason
	}
	b, err := a.NATS.open(ctx, name, c)
	if err != nil {
		return b, act.Person{}, err
	}
	person, err := a.person(b)
	if err != nil {
		b.nc.Close()
	}
	return b, person, err
}

func (a acting) person(b broker) (act.Person, error) {
	return a.named(b, cmp.Or(a.As, b.nc.Opts.User, loggedIn()))
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
