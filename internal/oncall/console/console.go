// Package console serves pages to people on call: what is wrong, what became of a request, what waits, dead letters. People
// also act here.
//
//	streams ──> index ────┐
//	programs ─> watch.go ─┼─ page function ─> GET  a page, from a template  page.go, pages/
//	a request's events ───┘                   POST ─> act.go, redrive.go ─> internal/oncall/act
//
// console.go is the program, server.go has the routes, and each page has a file of its name: today.go (with chart.go),
// find.go, requests.go (lists, dead letters), request.go, queues.go, audit.go. runs.go keeps redrives under way. mask.go
// hides personal data, and whatever a page shows of a body or a message passes it. words.go has the words and colours for
// states, classes, results and reasons: change them there, not in templates. zone.go writes times as each reader wants them.
//
// The pages work without scripts. The script asks every two seconds for a new version of the open page: the page's tag
// (server.go) says cheaply whether there may be one.
package console

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"

	"errand/internal/bus"
	"errand/internal/oncall/access"
	"errand/internal/oncall/act"
	"errand/internal/oncall/index"
	"errand/internal/programs"
	"errand/internal/retry"
)

// Program is the console's configuration.
type Program struct {
	programs.Pages
	programs.RecipientKey
	Access access.Config `embed:"" group:"access"`
	Dir    string        `env:"CONSOLE_DIR" default:"console-index" help:"Directory of the index; one per replica." group:"program"`
}

// Run serves pages until ctx ends and every act under way is done.
func (p *Program) Run(ctx context.Context) error {
	if err := p.Access.Validate(); err != nil {
		return err
	}
	secrets, err := p.Secrets()
	if err != nil {
		return err
	}
	return p.Serve(ctx, "console", func(with programs.Connected) (func(ctx, hard context.Context) error, error) {
		listener, err := p.Access.Listen(ctx)
		if err != nil {
			return nil, err
		}
		guard, err := access.New(p.Access, with.Logger)
		if err != nil {
			return nil, errors.Join(err, listener.Close())
		}
		known := &bus.Secrets{Conn: with.Conn, Given: secrets}
		x, err := index.Open(index.Options{Dir: p.Dir, Discarded: act.Discarded, Log: with.Logger})
		if err != nil {
			return nil, errors.Join(&programs.Invalid{Variable: "CONSOLE_DIR", Problem: err.Error()}, listener.Close())
		}
		if err := bus.AnswerFind(with.Conn, x.Find); err != nil {
			return nil, errors.Join(err, listener.Close(), x.Close())
		}
		s := newServer(with, x, guard, known)
		with.Logger.Info().Str("addr", listener.Addr().String()).Msg("serving pages")
		if link := guard.Link(listener.Addr().String()); link != "" {
			fmt.Fprintln(os.Stderr, "to reveal and to act, open", link) // a secret, and so not in the log
		}
		return func(ctx, hard context.Context) error {
			return errors.Join(s.run(ctx, hard, listener), x.Close())
		}, nil
	})
}

// run serves until ctx ends; requests under way then have until hard ends.
func (s *Server) run(ctx, hard context.Context, listener net.Listener) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { s.index.Follow(ctx, s.reader.Conn, s.reader.JS) })
	wg.Go(func() { s.watch.run(ctx) })
	wg.Go(func() { s.runs.run(ctx) })
	server := &http.Server{Handler: s.handler(), MaxHeaderBytes: 32 << 10,
		ReadHeaderTimeout: retry.AdminRead, ReadTimeout: retry.PageRead, IdleTimeout: retry.AdminIdle}
	return programs.Serve(ctx, hard, server, listener)
}
