package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"errand/internal/oncall/inspect"
	"errand/internal/style"
	"errand/pkg/messages"
)

type show struct {
	output
	ID string `arg:"" name:"id" help:"The request id."`
}

func (*show) Help() string {
	return `Shows the state of a request, its events and its batches', its mail's rows in the sending log, the
applications, deductions and callbacks of its mandate (without the payer's data), and its dead letters. The exit
status is 1 if nothing is known of it.

Examples:

    errand show enroll-signup-4711
    errand show send-invoice-17 --watch
    errand show enroll-signup-4711 -o json | jq '.[0].events[-1].body'
    errand show MANDATE_REQUESTS-4711    # a request that was published without an id`
}

func (s *show) Run(ctx context.Context, c console) error {
	if !inspect.IsID(s.ID) {
		return invalid("ID", "must be a request id: up to 64 letters, digits, - and _, got %q", s.ID)
	}
	return s.read(ctx, "show", c, func(b broker, now time.Time) (listing, error) {
		stories, err := b.Stories(ctx, s.ID, now)
		l := listStories(stories, now)
		if err == nil && stories[0].Unknown() {
			l.failed = errors.New("never seen: " + s.ID)
		}
		return l, err
	})
}

func listStories(stories []inspect.Story, now time.Time) listing {
	l := listing{whole: stories, text: func(c console) {
		for i, story := range stories {
			if i > 0 {
				fmt.Fprintln(c.out)
			}
			writeStory(c, story, now)
		}
	}}
	for _, story := range stories {
		l.add(story.RequestID, story)
	}
	return l
}

// shownDeliveries is the maximum number of rows of the sending log in a table.
const shownDeliveries = 20

func writeStory(c console, s inspect.Story, now time.Time) {
	head := s.RequestID
	if s.Operation != "" {
		head = string(s.Operation) + "  " + head
	}
	fmt.Fprintln(c.out, c.paint(bold, printable(head)))
	fmt.Fprintln(c.out, c.paint(colourOf(s.State), printable(s.Says)))
	part := func(title string, rows [][]cell) {
		if len(rows) > 0 {
			fmt.Fprintf(c.out, "\n%s\n", c.paint(dim, title))
			c.table([]string{"", "", ""}, rows)
		}
	}
	part("Events", eventRows(s.Events, now))
	if len(s.Deliveries) > 0 {
		var counts []string
		for _, state := range inspect.RowStates {
			if n := s.Deliveries[string(state)]; n > 0 {
				counts = append(counts, strconv.Itoa(n)+" "+string(state))
			}
		}
		shown := s.Delivered[:min(len(s.Delivered), shownDeliveries)]
		part("Sending log: "+strings.Join(counts, ", "), eventRows(shown, now))
		s.More += uint64(len(s.Delivered) - len(shown))
	}
	shown := s.Mandate[max(0, len(s.Mandate)-shownDeliveries):]
	part("Mandate: transaction list and callbacks", eventRows(shown, now))
	s.More += uint64(len(s.Mandate) - len(shown))
	if s.More > 0 {
		fmt.Fprintf(c.out, "and %d more: errand watch --since 30d --exit %s\n", s.More, inspect.Argument(s.RequestID))
	}
	var dead [][]cell
	for _, d := range s.Dead {
		dead = append(dead, []cell{{stamp(d.Time.Time, now), dim},
			cellOf(fmt.Sprintf("%s, %s: errand dead show %s", d.Reason, style.Bytes(d.Bytes), inspect.Name(d.Sequence)))})
	}
	part("Dead letters", dead)
}

func eventRows(events []inspect.Event, now time.Time) (rows [][]cell) {
	for _, e := range events {
		subject := messages.ParseSubject(e.Subject)
		what := string(subject.State)
		switch subject.Operation {
		case messages.Batch:
			what = fmt.Sprintf("batch %d %s", subject.Batch, what)
		case messages.Application, messages.Deduction, messages.Callback:
			what = inspect.Short(subject.Operation) + " " + what
		}
		rows = append(rows, []cell{{stamp(e.Time.Time, now), dim}, {what, colourOf(subject.State)}, cellOf(summary(e.Message, now))})
	}
	return rows
}
