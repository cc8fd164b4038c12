package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"errand/internal/programs"
)

// compare measures errand beside others.
type compare struct {
	Quick  bool   `help:"One round of some scenarios with less work: under a minute. The figures are rough."`
	Rounds int    `default:"5" help:"Rounds of each scenario, 1 to 100; the order of the contestants changes with each."`
	Only   string `help:"Only scenarios whose names match this regular expression, such as enroll-20ms-64, mail or sweep."`
	Before string `type:"existingdir" help:"Another checkout of errand, to measure its programs as the contestant named before."`
	Save   bool   `help:"Write the tables into docs/, instead of those that are there."`
}

// chosen returns the scenarios to run.
func (c *compare) chosen() ([]scenario, error) {
	if c.Rounds < 1 || c.Rounds > 100 {
		return nil, &programs.Invalid{Variable: "--rounds", Problem: "must be 1 to 100"}
	}
	only, err := regexp.Compile(c.Only)
	if err != nil {
		return nil, &programs.Invalid{Variable: "--only", Problem: err.Error()}
	}
	share := 1.0
	if c.Quick {
		share, c.Rounds = 0.5, 1
	}
	all := slices.DeleteFunc(scenarios(share), func(s scenario) bool {
		return !only.MatchString(s.key) || c.Quick && c.Only == "" && !s.quick
	})
	if len(all) == 0 {
		var keys []string
		for _, s := range scenarios(1) {
			keys = append(keys, s.key)
		}
		return nil, &programs.Invalid{Variable: "--only", Problem: "must match one of " + strings.Join(keys, ", ")}
	}
	return all, nil
}

// Run measures until all rounds are done or a contestant fails.
func (c *compare) Run(ctx context.Context) (err error) {
	all, err := c.chosen()
	if err != nil {
		return err
	}
	w, clean, err := build(ctx, c.Before)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, clean()) }()
	on, err := thisMachine(ctx)
	if err != nil {
		return err
	}
	var results []result
	for i, s := range all {
		r, err := s.compete(ctx, w, s.contestants(c.Before != ""), c.Rounds)
		if err != nil {
			return fmt.Errorf("%s: %w", s.key, err)
		}
		results = append(results, r)
		fmt.Printf("\n%d of %d\n%s", i+1, len(all), table(results[i:]))
	}
	about := fmt.Sprintf("%s; medians of %d rounds.", on, c.Rounds)
	fmt.Printf("\n%s\n\n%s\n%s\n%s", about, table(results), ratios(results), explanation)
	if !c.Save {
		return nil
	}
	return save(w.root, about+"\n\n"+summary(results))
}

// result is what a scenario showed.
type result struct {
	scenario
	contestants []contestant
	rounds      [][]figures // of each round, in the order of the contestants
}

// compete runs the rounds of a scenario.
func (c scenario) compete(ctx context.Context, w workshop, contestants []contestant, rounds int) (r result, err error) {
	s, err := w.open(c.key, c.upstream(w.dir)...)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	r = result{c, contestants, make([][]figures, rounds)}
	for n := range rounds {
		r.rounds[n] = make([]figures, len(contestants))
		for i := range contestants {
			i = (i + n) % len(contestants)
			if r.rounds[n][i], err = c.run(ctx, s, contestants[i], fmt.Sprintf("r%d-%d", n, i)); err != nil {
				return r, fmt.Errorf("round %d, %s: %w", n+1, contestants[i].name, err)
			}
		}
	}
	return r, nil
}
