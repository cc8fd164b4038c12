package sandbox

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestRowsHaveEveryFormAndEachKeepsItsForm(t *testing.T) {
	s := instant(t, newSandbox(t, strictOptions()))
	set(t, s, func(v *Settings) { v.LogForms, v.ShareBounced = true, 0.5 })
	send(t, s, "Notice", many(500)...)
	forms := func() (all []string) {
		for _, entry := range logs(t, s, "?limit=500")["data"].([]any) {
			row := entry.(map[string]any)
			all = append(all, fmt.Sprintf("%T %v %T", row["delivered"], row["delivered"], row["status"]))
		}
		return all
	}
	once := forms()
	equal(t, "the same each time", forms(), once)
	slices.Sort(once)
	kinds := slices.Compact(once)
	if want := 3*3 + 3*2; len(kinds) != want { // status is never left out of a bounced row
		t.Errorf("%d kinds of rows, want %d: %q", len(kinds), want, kinds)
	}
}

func TestRowsAreRemovedAndAddedLateBetweenTwoPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := instant(t, newSandbox(t, strictOptions()))
		for range 60 {
			send(t, s, "Notice", "a@example.test")
			time.Sleep(time.Second)
		}
		set(t, s, func(v *Settings) { v.LogLosses = 1 })
		equal(t, "one gone", logs(t, s, "")["total_record"], 59)
		equal(t, "another", logs(t, s, "")["total_record"], 58)
		equal(t, "lost", s.Oracle(Query{}).Mail.Lost, 2)
		set(t, s, func(v *Settings) { v.LogLosses, v.LogLate = 0, 1 })
		for range 20 {
			logs(t, s, "")
		}
		equal(t, "late", logs(t, s, "")["total_record"], 58+21)
		set(t, s, func(v *Settings) { v.LogLate = 0 })
		to := tos(t, logs(t, s, ""))
		first, last := slices.Index(to, "nobody@elsewhere.test"), len(to)-1
		for last >= 0 && to[last] != "nobody@elsewhere.test" {
			last--
		}
		if last-first < 22 {
			t.Errorf("21 late rows are next to each other, from %d to %d", first, last)
		}
	})
}

func TestALateRowIsAtMostAsOldAsTheSetting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := instant(t, newSandbox(t, strictOptions()))
		set(t, s, func(v *Settings) { v.LogLate, v.LogLateBy = 1, Duration(time.Hour) })
		for range 50 {
			logs(t, s, "")
		}
		oldest := time.Duration(0)
		for _, r := range s.Oracle(Query{Log: true}).Log {
			oldest = max(oldest, r.EnteredAt.Sub(r.CreatedAt))
		}
		if oldest < 50*time.Minute || oldest > time.Hour {
			t.Errorf("the latest of 50 rows is %v late, want nearly an hour", oldest)
		}
	})
}
