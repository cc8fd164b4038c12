package schema

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"errand/internal/bus"
	"errand/internal/wire"
)

// A subject with a schema is of one stream, and each subject of a stream has a schema. The leases of calls, requests that are
// scheduled, and by what a poller becomes the active one, are the programs' own: they are not events, and have no schema.
func TestTheSubjectsAreTheSubjectsOfTheStreams(t *testing.T) {
	var subjects []string
	for _, r := range requests {
		subjects = append(subjects, r.operation.Requested(), "dead."+r.operation.Requested())
	}
	for _, e := range events {
		subjects = append(subjects, e.Subject())
	}
	streams := bus.Streams(bus.Limits{MaxPayload: 1 << 20})
	matched := map[string]bool{}
	for _, subject := range subjects {
		var in []string
		for _, s := range streams {
			for _, filter := range s.Subjects {
				if wire.MatchSubject(filter, subject) {
					in = append(in, s.Name)
					matched[filter] = true
				}
			}
		}
		if len(in) != 1 {
			t.Errorf("%s is in the streams %q, want one", subject, in)
		}
	}
	for _, s := range streams {
		for _, filter := range s.Subjects {
			own := slices.Contains([]string{bus.RateLeases, bus.Audit, bus.Keys, bus.Suppressions}, s.Name) || s.AllowMsgSchedules
			if !matched[filter] && !own && !strings.HasSuffix(filter, ".turn") {
				t.Errorf("%s of %s has no schema", filter, s.Name)
			}
		}
	}
}

func TestWhateverAUserMayPublishHasASchema(t *testing.T) {
	config, err := os.ReadFile("../../deploy/nats/errand.conf")
	if err != nil {
		t.Fatal(err)
	}
	subjects := regexp.MustCompile(`"((?:mandate|mail)\.\w+\.\w+)[.*]*"`).FindAllSubmatch(config, -1)
	for _, s := range subjects {
		if subject := string(s[1]); !slices.Contains(Subjects(), subject) && !strings.HasSuffix(subject, ".turn") {
			t.Errorf("%s has no schema", subject)
		}
	}
	if len(subjects) < 50 {
		t.Errorf("%d subjects, want more", len(subjects))
	}
}
