package messages

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"errand/internal/wire"
)

const day = 24 * time.Hour

func TestAGiveUpIsAtMostAWeekAndADayLessThanTheEventsAreKept(t *testing.T) {
	for kept, want := range map[time.Duration]time.Duration{
		30 * day: 7 * day, 8 * day: 7 * day, 8*day - time.Second: 7*day - time.Second, 3 * day: 2 * day,
		2*day + 2: day + 2, 2 * day: day, 2*day - 2: day - 1, day: 12 * time.Hour, time.Hour: 30 * time.Minute, 2: 1,
		0: 7 * day, -1: 7 * day, // kept for ever
	} {
		if got := wire.MaxGiveUp(kept); got != want {
			t.Errorf("kept %v: got %v, want %v", kept, got, want)
		}
	}
}

func TestAGiveUpBeyondTheBoundIsAFaultThatSaysWhatIsAllowed(t *testing.T) {
	published := time.Date(2026, 1, 2, 11, 4, 5, 0, time.FixedZone("", 8*60*60))
	for _, c := range []struct {
		after, kept time.Duration
		rule        string
	}{
		{7 * day, 30 * day, ""},
		{7*day + 1, 30 * day, "must be at most 7 days after the request was published: not after 2026-01-09T03:04:05.000Z"},
		{90 * day, 0, "must be at most 7 days after the request was published: not after 2026-01-09T03:04:05.000Z"},
		{2 * day, 3 * day, ""},
		{3 * day, 3 * day, "must be at most 2 days after the request was published: not after 2026-01-04T03:04:05.000Z"},
		{time.Hour, time.Hour, "must be at most 0.5 hours after the request was published: not after 2026-01-02T03:34:05.000Z"},
		{-time.Hour, time.Hour, ""}, // has passed: the request ends as unavailable
	} {
		err := CheckTimes(Meta{GiveUpAt: published.Add(c.after)}, published, c.kept)
		want := map[string][]string(nil)
		if c.rule != "" {
			want = map[string][]string{"give_up_at": {c.rule}}
		}
		if diff := cmp.Diff(want, faultsOf(t, err)); diff != "" {
			t.Errorf("%v after, kept %v (-want +got):\n%s", c.after, c.kept, diff)
		}
	}
	if err := CheckTimes(Meta{}, published, time.Hour); err != nil {
		t.Errorf("not given: %v", err)
	}
}

func TestARequestIsScheduledAMonthAheadAtMostAndADayLessThanEventsAreKept(t *testing.T) {
	published := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	const last = " days after the request was published: not after 2026-"
	for _, c := range []struct {
		notBefore, giveUp, kept time.Duration
		want                    map[string][]string
	}{
		{30 * day, 0, 0, nil},
		{30*day + 1, 0, 0, map[string][]string{"not_before": {"must be at most 30" + last + "02-01T03:04:05.000Z"}}},
		{29 * day, 36 * day, 30 * day, nil}, // give_up_at counts from then
		{29*day + 1, 0, 30 * day, map[string][]string{"not_before": {"must be at most 29" + last + "01-31T03:04:05.000Z"}}},
		{time.Hour, time.Hour, 0, map[string][]string{"give_up_at": {"must be after not_before"}}},
		{day, 8*day + 1, 0, map[string][]string{"give_up_at": {
			"must be at most 7 days after not_before: not after 2026-01-10T03:04:05.000Z"}}},
		{-day, 7 * day, 0, nil}, // begins at once
		{-day, -2 * day, 0, nil},
	} {
		m := Meta{NotBefore: published.Add(c.notBefore)}
		if c.giveUp != 0 {
			m.GiveUpAt = published.Add(c.giveUp)
		}
		if diff := cmp.Diff(c.want, faultsOf(t, CheckTimes(m, published, c.kept))); diff != "" {
			t.Errorf("%v, given up %v, kept %v (-want +got):\n%s", c.notBefore, c.giveUp, c.kept, diff)
		}
	}
}
