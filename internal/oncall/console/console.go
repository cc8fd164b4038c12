// Package console is the program that shows pages to those on call: what is wrong, what
// became of a request, what waits, dead letters; and with which they act.
//
//	streams ──> index ──┐                      ┌─> GET  a page: text that a template makes
//	programs ─> watch ──┼── a page's function ─┤
//	one request's events┘                      └─> GET /live: the same page again, when it changed
//	                        POST ──> internal/oncall/act
//
//	console.go  the program
//	server.go   routes
//	page.go, errors.go  how a page is made of templates, and one that says what is wrong
//	live.go     pages that stay current, by server-sent events
//	watch.go    what is looked at all the time: queues, programs, how far the index is
//	today.go, chart.go, find.go, requests.go, request.go, queues.go, audit.go  the pages
//	act.go, redrive.go  what people do; runs.go: redrives under way
//	mask.go     personal data, hidden
//	words.go    how times, states and reasons are written
//
// Every page is HTML that the server makes, and works without scripts. The script keeps an
// open page current by putting the server's new version of it in place of the old one.
package console

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"

	"errand/internal/oncall/access"
	"errand/internal/oncall/index"
	"errand/internal/programs"
	"errand/internal/retry"
)

// Program is the console's configuration.
type Program struct {
	programs.Pages
	programs.RecipientKey
	Access access.Config `embed:"" group:"access"`
	Dir    string        `env:"CONSOLE_DIR" default:"console-index" help:"Directory of the index, one per replica; rebuilt when lost." group:"program"`
}

// Run serves pages until ctx ends and what people began is done.
func (p *Program) Run(ctx context.Context) error {
	if err := p.Access.Validate(); err != nil {
		return invalid(err)
	}
	secrets, err := p.Secrets()
	if err != nil {
		return err
	}
	return p.Serve(ctx, "console", func(with programs.Connected) (func(ctx, hard context.Context) error, error) {
		listener, err := p.Access.Listen(ctx)
		if err != nil {
			return nil, invalid(err)
		}
		guard, err := access.New(p.Access, with.Logger)
		if err != nil {
			return nil, errors.Join(invalid(err), listener.Close())
		}
		x, err := index.Open(index.Options{Dir: p.Dir, Secrets: secrets, Log: with.Logger})
		if err != nil {
			return nil, errors.Join(&programs.Invalid{Variable: "CONSOLE_DIR", Problem: err.Error()}, listener.Close())
		}
		s := newServer(with, x, guard, secrets)
		with.Logger.Info().Str("addr", listener.Addr().String()).Msg("pages are served")
		return func(ctx, hard context.Context) error {
			return errors.Join(s.run(ctx, hard, listener), x.Close())
		}, nil
	})
}

// invalid is an error of the access configuration as one of the program's.
func invalid(err error) error {
	if wrong, ok := errors.AsType[*access.Invalid](err); ok {
		return &programs.Invalid{Variable: wrong.Variable, Problem: wrong.Problem}
	}
	return err
}

// run serves until ctx ends; then streams are closed, and the rest has until hard ends.
func (s *Server) run(ctx, hard context.Context, listener net.Listener) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, work := range []func(context.Context){
		func(ctx context.Context) { s.index.Follow(ctx, s.reader.Conn, s.reader.JS) },
		s.watch.run, s.live.run, s.runs.run,
	} {
		wg.Go(func() { work(ctx) })
	}
	server := &http.Server{Handler: s.handler(), MaxHeaderBytes: 32 << 10, ReadHeaderTimeout: retry.AdminRead, ReadTimeout: retry.PageRead, IdleTimeout: retry.AdminIdle}
	context.AfterFunc(ctx, s.live.close)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }() // waited for below
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	err := server.Shutdown(hard)
	if err != nil {
		err = errors.Join(err, server.Close())
	}
	if end := <-ended; !errors.Is(end, http.ErrServerClosed) {
		err = errors.Join(err, end)
	}
	return err
}
