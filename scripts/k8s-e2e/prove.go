//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"errand/internal/programs"
)

// prove is the command that runs all assertions.
type prove struct {
	place
	Images string   `type:"existingdir" placeholder:"DIR" help:"Use the image archives in this directory instead of building them."`
	Only   []string `placeholder:"NAME" help:"Only these assertions, by name; the table at the end of a run has the names."`
}

// Run runs the assertions in a cluster.
func (p *prove) Run(ctx context.Context) error {
	for _, name := range p.Only {
		if !slices.ContainsFunc(assertions, func(a assertion) bool { return a.name == name }) {
			return &programs.Invalid{Variable: "--only", Problem: "there is no assertion " + name}
		}
	}
	err := p.runEnclosed(ctx)
	if ctx.Err() != nil {
		return errors.New("interrupted: nothing is proven") // not exit status 0, as after a signal otherwise
	}
	return err
}

// runEnclosed prepares what a cluster needs and starts it in its own namespaces.
func (p *prove) runEnclosed(ctx context.Context) error {
	if err := installed("etcd", "containerd", "containerd-shim-runc-v2", "ctr", "runc", "ip", "nft", "/usr/lib/cni/ptp",
		"/bin/busybox"); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("a node needs root: run it with sudo (validate does not)")
	}
	lock, err := acquireLock() // before anything is built that another run uses
	if err != nil {
		return err
	}
	defer lock.Close()
	bin, err := p.binaries(ctx, len(commands))
	if err != nil {
		return err
	}
	cache, err := p.cache()
	if err != nil {
		return err
	}
	root, err := tree()
	if err != nil {
		return err
	}
	images := p.Images
	if images == "" {
		if images, err = archives(ctx, root, bin, cache); err != nil {
			return err
		}
	}
	return runInNamespaces(ctx, filepath.Join(cache, "run"), "--bin="+bin, "--tree="+root, "--images="+images,
		"--only="+strings.Join(p.Only, ","))
}

// inside is the command that runs in the namespaces, as their first process.
type inside struct {
	Dir    string   `arg:""`
	Bin    string   `required:""`
	Tree   string   `required:""`
	Images string   `required:""`
	Only   []string `help:"Assertions."`
}

// Run starts the cluster and runs the assertions.
func (i *inside) Run(ctx context.Context) error {
	w := &world{tree: i.Tree, progress: progress{time.Now()}}
	c, err := i.start(ctx, w.progress)
	if err != nil {
		return err
	}
	w.local = c
	return w.prove(ctx, i.Only)
}

// start starts the cluster, with all images.
func (i *inside) start(ctx context.Context, p progress) (*local, error) {
	images, err := listArchives(i.Images)
	if err != nil {
		return nil, err
	}
	if err := errors.Join((&local{dir: i.Dir}).writeConfig(), prepareMounts(i.Dir), network(ctx)); err != nil {
		return nil, err
	}
	c, err := newLocal(ctx, i.Dir, i.Bin, address)
	if err != nil {
		return nil, err
	}
	p.logf("API server ready")
	if err := errors.Join(c.controllers(), c.startNode(ctx, images)); err != nil {
		return nil, err
	}
	p.logf("node ready, %d images loaded", len(images))
	return c, nil
}

// assertion is one thing that is proven.
type assertion struct {
	name, text string
	always     bool // the others depend on it
	run        func(context.Context, *world) error

	took time.Duration
	err  error
}

// failure is the panic with which must ends an assertion.
type failure struct{ error }

// must ends the assertion with an error, as a test ends with Fatal. Use it only on the goroutine of prove.
func must(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// get returns a value, unless its error ends the assertion.
func get[T any](value T, err error) T {
	must(err)
	return value
}

// attempt returns the error of run, also when must ended it.
func attempt(run func() error) (err error) {
	defer func() {
		switch end := recover().(type) {
		case nil:
		case failure:
			err = end.error
		default:
			panic(end)
		}
	}()
	return run()
}

// prove runs the assertions in their order and prints a table of them.
func (w *world) prove(ctx context.Context, only []string) error {
	all, failed := slices.Clone(assertions), 0
	if len(only) > 0 {
		all = slices.DeleteFunc(all, func(a assertion) bool { return !slices.Contains(only, a.name) && !a.always })
	}
	for n := range all {
		a := &all[n]
		if ctx.Err() != nil {
			a.err = context.Cause(ctx)
			continue
		}
		w.logf("— %s: %s", a.name, a.text)
		began := time.Now()
		a.err = attempt(func() error { return a.run(ctx, w) })
		a.took = time.Since(began)
		if a.err != nil {
			failed++
			w.logf("FAILED: %v", a.err)
		}
		if a.err != nil && a.always {
			return fmt.Errorf("%s: all other assertions depend on this one: %w", a.name, a.err)
		}
	}
	fmt.Println()
	for _, a := range all {
		result := "ok"
		if a.err != nil {
			result = "FAILED"
		}
		fmt.Printf("%-12s %-7s %5.0f s  %s\n", a.name, result, a.took.Seconds(), a.text)
	}
	if err := w.broken(); err != nil {
		fmt.Printf("The later results are invalid: %v\n", err)
		failed++
	}
	fmt.Println("\nNot proven here: " + notProven)
	if failed > 0 || ctx.Err() != nil {
		return errors.New("not proven")
	}
	return nil
}
