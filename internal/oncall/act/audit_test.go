package act_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/oncall/act"
	"errand/internal/sandbox/devkit/devtest"
)

// ann acts on a server that has the streams.
func ann(t *testing.T) act.Person {
	t.Helper()
	_, nc := devtest.Provisioned(t)
	return as(t, nc, "ann@example.com")
}

func as(t *testing.T, nc *nats.Conn, name string) act.Person {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	p, err := act.As(name, "errand 1.0.0", nc, js)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func acts(t *testing.T, p act.Person, q act.Query) (lines []string) {
	t.Helper()
	entries, err := act.Acts(t.Context(), p.Conn, q)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %s %s: %s, %s %s %s", e.Verb, e.Actor, e.Target, e.Why, e.Result, e.Message,
			e.Suspect)))
	}
	return lines
}

func done(said string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return said, nil }
}

func TestAnActIsRecordedBeforeItIsDoneAndAfterIt(t *testing.T) {
	t.Parallel()
	p := ann(t)
	first := act.Act{Verb: act.Redrive, Target: "r1", Why: " the quota was raised ", Plan: "failed refused"}
	said, err := p.Do(t.Context(), first, func(context.Context) (string, error) {
		want := []string{"redrive ann@example.com r1: the quota was raised, unknown"}
		if diff := cmp.Diff(want, acts(t, p, act.Query{})); diff != "" {
			t.Errorf("while it is done (-want +got):\n%s", diff)
		}
		return "reopened", nil
	})
	if said != "reopened" || err != nil {
		t.Errorf("it said %q, %v", said, err)
	}
	if _, err := p.Do(t.Context(), act.Act{Verb: act.Cancel, Target: "r2", Why: "withdrawn"}, func(context.Context) (string, error) {
		return "", fmt.Errorf("%w: it is started", act.ErrNothingDone)
	}); !errors.Is(err, act.ErrNothingDone) {
		t.Errorf("got %v, want %v", err, act.ErrNothingDone)
	}
	if _, err := p.Do(t.Context(), act.Act{Verb: act.Cancel, Target: "r3", Why: "withdrawn"}, func(context.Context) (string, error) {
		return "", errors.New("no answer")
	}); err == nil {
		t.Error("the act's error is lost")
	}
	want := []string{"cancel ann@example.com r3: withdrawn, unknown no answer",
		"cancel ann@example.com r2: withdrawn, not_done nothing was done: it is started",
		"redrive ann@example.com r1: the quota was raised, done reopened"}
	if diff := cmp.Diff(want, acts(t, p, act.Query{})); diff != "" {
		t.Errorf("afterwards (-want +got):\n%s", diff)
	}
}

// A person's command is killed between the two records, or its connection is gone.
func TestAnActWithoutItsSecondRecordIsNotKnownToBeDone(t *testing.T) {
	t.Parallel()
	p := ann(t)
	func() {
		defer func() { _ = recover() }()
		_, _ = p.Do(t.Context(), act.Act{Verb: act.Redrive, Target: "r1", Why: "x"}, func(context.Context) (string, error) { panic("killed") })
	}()
	entries, err := act.Acts(t.Context(), p.Conn, act.Query{})
	if err != nil || len(entries) != 1 || entries[0].Result != act.Unknown || entries[0].Ended != nil {
		t.Errorf("got %+v, %v, want one of which it is not known how it went", entries, err)
	}
}

func TestNothingIsDoneWithoutAReasonARecordOrAName(t *testing.T) {
	t.Parallel()
	p := ann(t)
	never := func(context.Context) (string, error) {
		t.Error("it was done")
		return "", nil
	}
	for _, why := range []string{"", " \n"} {
		if _, err := p.Do(t.Context(), act.Act{Verb: act.Redrive, Target: "r1", Why: why}, never); !errors.Is(err, act.ErrNoReason) {
			t.Errorf("reason %q: %v, want %v", why, err, act.ErrNoReason)
		}
	}
	for _, name := range []string{"", strings.Repeat("x", 200)} {
		if _, err := act.As(name, "", p.Conn, p.JS); !errors.Is(err, act.ErrNobody) {
			t.Errorf("name %q: %v, want %v", name, err, act.ErrNobody)
		}
	}
	if err := p.JS.DeleteStream(t.Context(), bus.Audit); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer stop()
	if _, err := p.Do(ctx, act.Act{Verb: act.Redrive, Target: "r1", Why: "x"}, never); !errors.Is(err, act.ErrNotRecorded) {
		t.Errorf("without the stream: %v, want %v", err, act.ErrNotRecorded)
	}
}

func TestActsAreFoundByWhoAndWhatAndWhen(t *testing.T) {
	t.Parallel()
	p := ann(t)
	ben := as(t, p.Conn, "b.e*n>")
	for _, who := range []act.Person{p, ben} {
		for _, verb := range []act.Verb{act.Redrive, act.Cancel} {
			for _, target := range []string{"r1", "r2"} {
				if _, err := who.Do(t.Context(), act.Act{Verb: verb, Target: target, Why: "x"}, done("")); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for _, c := range []struct {
		q    act.Query
		want []string
	}{
		{act.Query{Verb: act.Cancel, Target: "r1"}, []string{"cancel b.e*n> r1: x, done", "cancel ann@example.com r1: x, done"}},
		{act.Query{Actor: "b.e*n>", Target: "r2"}, []string{"cancel b.e*n> r2: x, done", "redrive b.e*n> r2: x, done"}},
		{act.Query{Limit: 1}, []string{"cancel b.e*n> r2: x, done"}},
		{act.Query{Actor: "b"}, nil},
		{act.Query{Since: time.Now().Add(time.Hour)}, nil},
	} {
		if diff := cmp.Diff(c.want, acts(t, p, c.q)); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", c.q, diff)
		}
	}
	if n := len(acts(t, p, act.Query{Since: time.Now().Add(-time.Hour)})); n != 8 {
		t.Errorf("of the last hour there are %d, want 8", n)
	}
}

// What somebody stores beside errand must not pass for an act of another.
func TestARecordThatIsNotWhatItsSubjectSaysIsSuspect(t *testing.T) {
	t.Parallel()
	p := ann(t)
	for _, body := range []string{"{", `{}`, `{"id":"1","actor":"ben","verb":"redrive","target":"r1","why":"x","result":"done"}`} {
		m := nats.NewMsg("audit.redrive.ann.r1")
		m.Header.Set(nats.MsgIdHdr, body)
		m.Data = []byte(body)
		if _, err := p.JS.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.JS.Publish(t.Context(), "audit.redrive.ann.r1",
		[]byte(`{"id":"2","actor":"ann","verb":"redrive","target":"r1","why":"x","result":"done"}`)); err != nil {
		t.Fatal(err)
	}
	entries, err := act.Acts(t.Context(), p.Conn, act.Query{})
	if err != nil || len(entries) != 4 {
		t.Fatalf("got %+v, %v, want four", entries, err)
	}
	for _, e := range entries {
		if e.Suspect == "" || e.Actor != "ann" {
			t.Errorf("got %+v, want one of ann that is suspect", e)
		}
	}
}

// Who acted may store more records under the same id; none of them changes what was recorded before the act.
func TestWhatWasRecordedBeforeAnActStands(t *testing.T) {
	t.Parallel()
	p := ann(t)
	if _, err := p.Do(t.Context(), act.Act{Verb: act.Redrive, Target: "r1", Why: "the quota was raised"}, done("reopened")); err != nil {
		t.Fatal(err)
	}
	first, err := act.Acts(t.Context(), p.Conn, act.Query{})
	if err != nil || len(first) != 1 || first[0].Suspect != "" {
		t.Fatalf("got %+v, %v, want one act", first, err)
	}
	store := func(r act.Record, id string) {
		body, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		m := nats.NewMsg("audit.redrive.ann@example%2Ecom.r1")
		m.Header.Set(nats.MsgIdHdr, id)
		m.Data = body
		if _, err := p.JS.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	third := first[0].Record
	third.Why, third.Plan, third.Message, third.At.Time = "somebody asked for it", "safe", "nothing", third.At.Add(-time.Hour)
	store(third, "third")
	early := first[0].Record
	early.ID, early.Result, early.At.Time = "early", "", early.At.Add(-24*time.Hour)
	store(early, "early")
	all, err := act.Acts(t.Context(), p.Conn, act.Query{})
	if err != nil || len(all) != 2 {
		t.Fatalf("got %+v, %v, want two acts", all, err)
	}
	want := first[0]
	if want.Suspect = all[1].Suspect; want.Suspect == "" || !reflect.DeepEqual(all[1], want) {
		t.Errorf("after a third record: %+v, want the first's words and suspicion", all[1])
	}
	if got := all[0]; got.Suspect == "" || time.Since(got.At.Time) > time.Hour {
		t.Errorf("of an act of yesterday that is stored today: %+v, want the stream's time and suspicion", got)
	}
}
