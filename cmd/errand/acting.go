package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/user"
	"strings"

	"errand/internal/oncall/act"
	"errand/internal/programs"
)

// acting is what a command has that changes something.
type acting struct {
	NATS access `embed:"" group:"nats"`
	Why  string `placeholder:"REASON" help:"Why. It is kept for 400 days with who did what, and nobody can take it out: no personal data."`
	As   string `env:"ERRAND_AS" placeholder:"NAME" help:"Who does it. Default: the NATS user, else the user of this machine; for erase the latter first."`
}

var noReason = &programs.Invalid{Variable: "--why", Problem: "must say why, for example --why 'the quota was raised'"}

// open connects a command that acts. A reason is missing before anything is looked at.
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

// person is who acts on a connection.
func (a acting) person(b broker) (act.Person, error) {
	return a.named(b, cmp.Or(a.As, b.nc.Opts.User, loggedIn()))
}

func (a acting) named(b broker, name string) (act.Person, error) {
	person, err := act.As(name, "errand "+programs.Version(), b.nc, b.js)
	if err != nil {
		return person, &programs.Invalid{Variable: "--as (ERRAND_AS)", Problem: fmt.Sprintf("%q cannot be who does it", name)}
	}
	return person, nil
}

// loggedIn is the user of this machine, "" when it has none.
func loggedIn() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return os.Getenv("USER")
}
