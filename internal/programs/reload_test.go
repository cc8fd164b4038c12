package programs

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"errand/pkg/clients"
)

var (
	refused401 = clients.Call{Fate: clients.Held, Status: 401}
	refused403 = clients.Call{Fate: clients.Held, Status: 403}
)

func TestSecretsAreReadOnceAProbeAndOnlyWhenTheyAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read := 0
		r := reload{every: 10 * time.Second, secrets: func() (bool, error) { read++; return false, nil }}
		for _, c := range []clients.Call{{Fate: clients.Success, Status: 200}, {Fate: clients.Held, Status: 402},
			{Fate: clients.Busy, Status: 503}, {Fate: clients.Refused, Status: 403}} {
			r.observe(c)
		}
		if read != 0 {
			t.Errorf("read %d times although nothing was refused", read)
		}
		for want := 1; want <= 3; want++ {
			for range 64 {
				r.observe(refused401)
				r.observe(refused403)
			}
			if read != want {
				t.Errorf("read %d times, want %d", read, want)
			}
			time.Sleep(10 * time.Second)
		}
	})
}

// An error is logged when it begins and when it changes.
func TestUnreadableSecretsAreLoggedOnceUntilThatChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged bytes.Buffer
		var wrong error
		r := reload{every: time.Second, log: zerolog.New(&logged), secrets: func() (bool, error) { return wrong == nil, wrong }}
		for _, wrong = range []error{errors.New("gone"), errors.New("gone"), errors.New("empty"), nil, errors.New("empty")} {
			r.observe(refused401)
			time.Sleep(time.Second)
		}
		var got []string
		for line := range strings.Lines(logged.String()) {
			for _, word := range []string{"gone", "empty", "reloaded\""} {
				if strings.Contains(line, word) {
					got = append(got, word)
				}
			}
		}
		if want := `gone empty reloaded" empty`; strings.Join(got, " ") != want {
			t.Errorf("logged %q, want %q", got, want)
		}
	})
}
