package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"errand/internal/bus"
	"errand/internal/oncall/act"
	"errand/internal/oncall/inspect"
	"errand/pkg/messages"
)

var update = flag.Bool("update", false, "write testdata as the commands print now")

// noon is the time at which everything is shown here.
var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

func before(d time.Duration) messages.Time { return messages.Time{Time: noon.Add(-d)} }

func beforeAt(d time.Duration) *messages.Time { t := before(d); return &t }

// What people see on a terminal of 80 columns.
func TestScreens(t *testing.T) {
	t.Parallel()
	for name, show := range map[string]func(c console){
		"status.fine":    func(c console) { table.show(c, listProblems(statusOf())) },
		"status.trouble": func(c console) { table.show(c, listProblems(inTrouble(statusOf()))) },
		"status.started": func(c console) { table.show(c, listProblems(started(statusOf()))) },
		"stuck":          func(c console) { table.show(c, (&stuck{Older: time.Minute}).list(stuckOf(), noon)) },
		"stuck.nothing":  func(c console) { table.show(c, (&stuck{Older: time.Minute}).list(inspect.Stuck{}, noon)) },
		"list":           func(c console) { table.show(c, listRequests(rowsOfList(), noon)) },
		"list.by-reason": func(c console) { table.show(c, listGroups(inspect.ByReason(rowsOfList()[1:]), noon)) },
		"list.name":      func(c console) { format{"name"}.show(c, listRequests(rowsOfList(), noon)) },
		"find.address": func(c console) {
			table.show(c, listFound(findingOf(), noon))
			writeUnread(c, findingOf().Unread)
		},
		"find.order":   func(c console) { table.show(c, listFound(unmatchedOf(), noon)) },
		"show":         func(c console) { table.show(c, listStories(storiesOf(), noon)) },
		"show.mandate": func(c console) { table.show(c, listStories(mandateOf(), noon)) },
		"dead.list":    func(c console) { table.show(c, listLetters(lettersOf(), noon)) },
		"dead.show":    func(c console) { writeDeadLetter(c, lettersOf()[0], noon) },
		"dead.redrive": func(c console) { (&deadRedrive{format: table}).plan(c, itemsOf()) },
		"audit":        func(c console) { table.show(c, listActs(entriesOf(), noon)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var term terminal
			show(console{out: &term.out, errs: &term.errs, redraws: true, width: 80})
			golden(t, name+".txt", term.out.String()+term.errs.String())
		})
	}
}

// JSON is for scripts: it changes only by what is added.
func TestJSONStaysAsItIs(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]listing{
		"status": listProblems(inTrouble(statusOf())),
		"stuck":  new(stuck).list(stuckOf(), noon),
		"list":   listRequests(rowsOfList(), noon),
		"find":   listFound(findingOf(), noon),
		"show":   listStories(append(storiesOf(), mandateOf()...), noon),
		"dead":   listLetters(lettersOf(), noon),
		"audit":  listActs(entriesOf(), noon),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, form := range []string{"json", "jsonl"} {
				var term terminal
				format{form}.show(console{out: &term.out, errs: &text{}, width: 80}, l)
				golden(t, name+"."+form, term.out.String())
			}
		})
	}
}

// A stranger's text does nothing to a terminal, in any form.
func TestTheWholeListIsReadLater(t *testing.T) {
	t.Parallel()
	s := inspect.Status{At: messages.Time{Time: noon}, Programs: []bus.ProgramStatus{{Program: bus.TransactionPoller}}}
	got := readUpTo(s, inspect.Poller{ReadThrough: beforeAt(4 * time.Second)}, bus.TransactionPoller, "all of it")
	if want := "read up to 4s ago; all of it: not yet"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The leader is gone, and a standby has not followed it yet, or cannot.
func TestAListWithoutALeaderSaysSo(t *testing.T) {
	t.Parallel()
	s := statusOf()
	s.Programs[0].Standby, s.Poller.ReadThrough, s.Poller.Marked = true, nil, beforeAt(41*time.Second)
	s.Programs = append(s.Programs, bus.ProgramStatus{Program: bus.TransactionPoller, Standby: true})
	var term terminal
	screen(console{out: &term.out, width: 200}, s)
	for _, want := range []string{"read up to 41s ago by the last leader; none leads now",
		"read up to 20s ago by the last leader; none leads now"} {
		if got := term.out.String(); !strings.Contains(got, want) {
			t.Errorf("it lacks %q:\n%s", want, got)
		}
	}
}

func TestNoFormHasControlCharacters(t *testing.T) {
	t.Parallel()
	hostile := "a\x1b[2J\u202eb\x7f\u0085"
	for _, form := range []string{"table", "json", "jsonl", "name"} {
		var term terminal
		c := console{out: &term.out, errs: &term.errs, redraws: true, width: 80}
		format{form}.show(c, listing{head: []string{"ONE", "OTHER"}, rows: [][]cell{{cellOf(hostile), cellOf(hostile)}},
			names: []string{hostile}, values: []any{map[string]string{hostile: hostile}}})
		if got := term.out.String(); strings.ContainsFunc(got, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) ||
			!strings.Contains(got, "[2J") {
			t.Errorf("%s: %q", form, got)
		}
	}
}

// What does not fit a terminal's line gets another line; a file has it all in one.
func TestALongTextHasALineOfItsOwn(t *testing.T) {
	t.Parallel()
	rows := [][]cell{{cellOf("id"), cellOf("short")}, {cellOf("id"), cellOf("longer than it is wide, by far")}}
	for terminals, want := range map[bool]string{true: "A   B\nid  short\nid\n    longer than it …\n",
		false: "A   B\nid  short\nid  longer than it is wide, by far\n"} {
		var term terminal
		(console{out: &term.out, redraws: terminals, width: 20}).table([]string{"A", "B"}, rows)
		if got := term.out.String(); got != want {
			t.Errorf("on a terminal %v: %q, want %q", terminals, got, want)
		}
	}
}

var table = format{"table"}

// golden compares with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (go test -update writes it): %s", file, diff)
	}
}

func statusOf() inspect.Status {
	program := func(name string) bus.ProgramStatus {
		return bus.ProgramStatus{Program: name, Host: name + "-0", Version: "1.4.0", Started: before(50 * time.Hour), Faults: []string{},
			Holds: []bus.Hold{}}
	}
	s := inspect.Status{At: before(0), Programs: []bus.ProgramStatus{program("log-poller"), program("mail-consumer"),
		program("mandate-consumer")}}
	s.Programs[0].ReadThrough = beforeAt(3 * time.Second)
	s.Poller = inspect.Poller{ReadThrough: s.Programs[0].ReadThrough, Watermark: beforeAt(3 * time.Minute)}
	s.Transactions = &inspect.Poller{ReadThrough: beforeAt(20 * time.Second), Watermark: beforeAt(9 * time.Hour), Marked: beforeAt(time.Hour)}
	for _, op := range inspect.Operations {
		s.Queues = append(s.Queues, inspect.Queue{Operation: op, Pulls: 2})
	}
	s.Queues[0].Untaken, s.Queues[0].Taken, s.Queues[0].FirstFree, s.Queues[0].Oldest = 12, 64, beforeAt(2*time.Second),
		beforeAt(4*time.Second)
	for _, o := range []struct {
		op    messages.Operation
		state messages.State
		n     uint64
	}{{messages.Enroll, messages.Succeeded, 4711}, {messages.Enroll, messages.Failed, 17}, {messages.Enroll, messages.Uncertain, 0},
		{messages.Enroll, messages.Deferred, 3},
		{messages.Enroll, messages.Resolved, 1}, {messages.Transactions, messages.Listed, 2}, {messages.Transactions, messages.Failed, 0},
		{messages.Send, messages.Accepted, 815},
		{messages.Send, messages.Partial, 1}, {messages.Send, messages.Failed, 0}, {messages.Send, messages.Uncertain, 0},
		{messages.Send, messages.Resolved, 0}, {messages.Send, messages.Deferred, 0},
		{messages.Account, messages.Reported, 0}, {messages.Account, messages.Failed, 0}} {
		s.Outcomes = append(s.Outcomes, inspect.Outcome{Operation: o.op, State: o.state, Count: o.n})
	}
	for i, name := range []string{bus.MandateRequests, bus.MandateEvents, bus.MailRequests, bus.MailEvents, bus.MailDeliveries,
		bus.DeadLetters} {
		s.Streams = append(s.Streams, inspect.Stream{Name: name, Messages: uint64(i * 12345), Bytes: uint64(i * 12345678), MaxBytes: 10 << 30,
			Replicas: 3, Current: 3, Created: before(90 * 24 * time.Hour)})
	}
	s.Storage = inspect.Storage{Bytes: 185185170, Limit: -1}
	s.Problems = inspect.Problems(s)
	return s
}

// started is a status in which both pollers have just started.
func started(s inspect.Status) inspect.Status {
	s.Programs = append(s.Programs, bus.ProgramStatus{Program: bus.TransactionPoller, Host: "transaction-poller-0", Version: "1.4.0",
		Started: before(time.Second)})
	s.Poller.ReadThrough, s.Transactions.ReadThrough = nil, nil
	return s
}

// inTrouble is a status with some of everything.
func inTrouble(s inspect.Status) inspect.Status {
	s.Programs = s.Programs[1:]
	s.Programs[1].Holds = []bus.Hold{{Operation: messages.Enroll, Why: "mandate service (enroll) answers 503: overloaded or out of order",
		Since: before(25 * time.Minute)}}
	s.Programs[0].Faults = []string{"NATS does not store in MAIL_EVENTS: maximum bytes exceeded"}
	s.Queues[0].FirstFree = beforeAt(26 * time.Minute)
	s.Queues[2].PausedUntil, s.Queues[2].Pause = beforeAt(-30*time.Minute),
		&inspect.Pause{Actor: "olga", Why: "the mail service is being moved"}
	for i := range s.Outcomes {
		switch o := &s.Outcomes[i]; {
		case o.Operation == messages.Enroll && o.State == messages.Failed:
			o.Count = 517
		case o.Operation == messages.Send && o.State == messages.Uncertain:
			o.Count, o.Still = 2, 2
		}
	}
	s.Streams[3].Bytes = 9 << 30
	s.Streams[5].Current = 2
	s.Poller.ReadThrough = nil
	s.Transactions.ReadThrough = beforeAt(11 * time.Minute)
	s.Problems = inspect.Problems(s)
	return s
}

// The pages for those on call show what the commands print.
func TestThePagesForThoseOnCallShowWhatIsPrinted(t *testing.T) {
	t.Parallel()
	var pages []byte
	for _, page := range []string{"questions.md", "acts.md"} {
		text, err := os.ReadFile("../../docs/on-call/" + page)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, text...)
	}
	for _, name := range []string{"status.trouble", "stuck", "list.by-reason", "find.address", "find.order", "show", "show.mandate",
		"dead.list", "dead.redrive", "audit"} {
		shown, err := os.ReadFile(filepath.Join("testdata", name+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(shown)) {
			if line = strings.TrimRight(line, "\n"); line != "" && !strings.Contains(string(pages), "\n    "+line+"\n") {
				t.Errorf("docs/on-call does not show what %s prints: %s", name, line)
			}
		}
	}
}

func entriesOf() []act.Entry {
	entry := func(ago time.Duration, actor string, a act.Act, result act.Result, message string) act.Entry {
		return act.Entry{Record: act.Record{ID: "4J3M5KD2PXQ7A", At: before(ago), Actor: actor, Via: "errand 1.5.0", Act: a, Result: result,
			Message: message}, Ended: beforeAt(ago), Sequence: 11}
	}
	lost := entry(3*time.Hour, "ben", act.Act{Verb: act.Redrive, Operation: messages.Send, Target: "invoice-17", Why: "the quota was raised"},
		act.Unknown, "")
	lost.Ended = nil
	forged := entry(26*time.Hour, "ann", act.Act{Verb: act.Redrive, Target: "signup-1", Why: "a test"}, act.Done, "")
	forged.Suspect = "the record was not stored by errand"
	return []act.Entry{
		entry(time.Minute, "olga", act.Act{Verb: act.Pause, Operation: messages.Enroll, Target: "mandate-enroll", Why: "INC-4711",
			Plan: "not paused; pause it until 2026-01-31T12:30:00Z"}, act.Done, "paused until 2026-01-31T12:30:00Z"),
		entry(2*time.Minute, "olga", act.Act{Verb: act.Cancel, Operation: messages.Enroll, Target: "signup-2", Why: "withdrawn"}, act.NotDone,
			"nothing was done: a call is under way"),
		entry(5*time.Minute, "ann@example.com", act.Act{Verb: act.Redrive, Operation: messages.Enroll, Target: "signup-1",
			Why: "the quota was raised"}, act.Unknown, "NATS does not answer"),
		lost, forged,
	}
}
