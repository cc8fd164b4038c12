package programs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
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

func TestAnErrorNamesTheHelpOfItsCommand(t *testing.T) {
	t.Parallel()
	var cli struct {
		Publish struct{ File string } `cmd:""`
		Dead    struct {
			Show ending `cmd:""`
		} `cmd:""`
	}
	parser, err := kong.New(&cli, kong.Name("program"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, want string }{
		{"publish --file a", "program publish"}, // one that Run refuses
		{"publish --feild a", "program publish"},
		{"dead show --file a", "program dead show"},
		{"pblish", "program"},
		{"", "program"},
	} {
		parsed, err := parser.Parse(strings.Fields(c.args))
		if got := command("program", parsed, err); got != c.want {
			t.Errorf("%q: %s, want %s", c.args, got, c.want)
		}
	}
}
