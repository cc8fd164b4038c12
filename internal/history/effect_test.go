package history_test

import (
	"testing"

	"errand/internal/history"
	"errand/internal/history/historytest"
	"errand/pkg/messages"
)

func TestWhatWasDoneIsSaidByTheBatchesToo(t *testing.T) {
	const begun = `{"fingerprint":"f","batches":3,"batch_size":2,"recipients":6}`
	for what, c := range map[string]struct {
		events        [][2]string // subject without its domain, body; the last one is the request's last
		done, unknown bool
	}{
		"nothing":             {},
		"a call under way":    {events: [][2]string{{"send.started.r1", `{"fingerprint":"f","batches":1}`}}, unknown: true},
		"cut, and none begun": {events: [][2]string{{"send.started.r1", begun}}},
		"one accepted": {events: [][2]string{{"send.started.r1", begun}, {"batch.accepted.r1.2", `{}`}, {"send.deferred.r1", `{}`}},
			done: true},
		"one under way": {events: [][2]string{{"send.started.r1", begun}, {"batch.started.r1.3", `{}`}, {"send.deferred.r1", `{}`}},
			unknown: true},
		"one refused": {events: [][2]string{{"send.started.r1", begun}, {"batch.refused.r1.1", `{}`}, {"send.deferred.r1", `{}`}}},
		"one waits":   {events: [][2]string{{"send.started.r1", begun}, {"batch.deferred.r1.1", `{}`}, {"send.deferred.r1", `{}`}}},
		"one waits in doubt": {events: [][2]string{{"send.started.r1", begun}, {"batch.deferred.r1.1", `{"after_unknown":true}`},
			{"send.deferred.r1", `{}`}}, unknown: true},
		"scheduled":    {events: [][2]string{{"send.deferred.r1", `{"reason":"scheduled"}`}}},
		"nobody knows": {events: [][2]string{{"send.deferred.r1", `{}`}}, unknown: true},
		"corrected": {events: [][2]string{{"send.started.r1", begun},
			{"send.reopened.r1", `{"fingerprint":"g","was":{"state":"failed"}}`}}},
		"reopened when in doubt": {events: [][2]string{{"send.reopened.r1", `{"was":{"state":"uncertain"}}`}}, unknown: true},
		"reopened when in part":  {events: [][2]string{{"send.reopened.r1", `{"was":{"state":"partial"}}`}}, done: true},
		"reopened in part, and the accepted ones have expired": {events: [][2]string{{"send.started.r1", begun},
			{"batch.refused.r1.3", `{}`}, {"send.reopened.r1", `{"fingerprint":"f","by":"ann","was":{"state":"partial"},"batches":[3]}`}},
			unknown: true},
		"reopened in part, deferred, and they have expired": {events: [][2]string{
			{"send.reopened.r1", `{"fingerprint":"f","by":"ann","was":{"state":"partial"},"batches":[3]}`}, {"send.started.r1", begun},
			{"batch.deferred.r1.3", `{}`}, {"send.deferred.r1", `{"fingerprint":"f"}`}}, unknown: true},
		"reopened when nothing was done": {events: [][2]string{{"send.started.r1", begun},
			{"send.reopened.r1", `{"fingerprint":"f","by":"ann","was":{"state":"failed"},"batches":[1,2,3]}`}}},
		"failed":                  {events: [][2]string{{"send.failed.r1", `{}`}}},
		"failed, in doubt":        {events: [][2]string{{"send.failed.r1", `{"after_unknown":true}`}}, unknown: true},
		"it turned out to be so":  {events: [][2]string{{"send.resolved.r1", `{"outcome":"accepted"}`}}, done: true},
		"it turned out not to be": {events: [][2]string{{"send.resolved.r1", `{"outcome":"failed"}`}}},
	} {
		log, last := &historytest.Log{}, history.Prior{}
		for _, e := range c.events {
			log.Put("mail."+e[0], []byte(e[1]))
			last.State, last.Last = messages.StateOf("mail."+e[0]), []byte(e[1])
			last.Facts, _ = history.ReadFacts(last.Last)
		}
		got, err := history.EffectOf(t.Context(), log, messages.Send, "r1", last)
		if err != nil || got.Done != c.done || got.Unknown != c.unknown || got.None() != (!c.done && !c.unknown) {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
		if last.Fingerprint == "g" && got.Began.Fingerprint == "f" {
			t.Errorf("%s: it says how other contents were begun", what)
		}
	}
}
