package app

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// ending is a program that ends with an error.
type ending struct{ err error }

func (e *ending) Run(context.Context) error { return e.err }

func TestTheExitStatusSaysHowTheProgramEnded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0}, {errors.New("no"), exitFailed}, {&Invalid{"A", "is wrong"}, exitConfig},
		{fmt.Errorf("wait: %w", &Exit{Status: 4, Err: errors.New("no outcome")}), 4},
	} {
		if got := run(t.Context(), "program", "", &ending{c.err}, nil); got != c.want {
			t.Errorf("%v: exit status %d, want %d", c.err, got, c.want)
		}
	}
}
