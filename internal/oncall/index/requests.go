package index

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"errand/internal/oncall/inspect"
	"errand/pkg/messages"
)

// Filter says which requests are asked for. What is empty does not limit.
type Filter struct {
	Operations []messages.Operation
	States     []messages.State
	Reasons    []messages.Reason
	Classes    []inspect.Class
	Dead       bool      // those alone that have a dead letter
	Needed     bool      // of these, those that need somebody
	Since      time.Time // of the state that they are in
	Until      time.Time // before it
	Before     Cursor    // where the page begins: Page.Next of the one before it
	Limit      int       // how many at most; 0 means 50
}

// wants reports whether requests of a kind are asked for. One whose history is not known is listed only among dead
// letters.
func (f Filter) wants(k Kind) bool {
	return (k.State != "" || k.Dead) && (!f.Dead || k.Dead) && (!f.Needed || k.Needed()) && one(f.Operations, k.Operation) &&
		one(f.States, k.State) && one(f.Reasons, k.Reason) && one(f.Classes, k.Class)
}

func one[T comparable](asked []T, value T) bool {
	return len(asked) == 0 || slices.Contains(asked, value)
}

// Cursor is a place in a list, "" its beginning. It is text for a link, and names nobody.
type Cursor string

// place is where a row is in a list: by time, and among rows of the same time by number.
type place struct{ at, n int64 }

// ErrCursor means that a cursor is not a place in a list.
var ErrCursor = errors.New("index: there is no such place in a list")

// Row is a request as it is now.
type Row struct {
	Kind
	RequestID  string    `json:"request_id"`
	HTTPStatus int       `json:"http_status,omitempty"`
	Attempt    int       `json:"attempt,omitempty"`
	Began      time.Time `json:"began"`                 // of its first event that was seen
	At         time.Time `json:"at"`                    // of the state that it is in
	Sequence   uint64    `json:"sequence"`              // of that event, in the stream of the operation's events
	DeadLetter uint64    `json:"dead_letter,omitempty"` // sequence of the last one, 0 when there is none

	place place
}

// Page is part of a list.
type Page struct {
	Rows []Row
	Next Cursor // of the page after this one; "" when this is the last
}

// Requests returns a page of requests, the newest state first. Errors: ErrCursor, or
// ctx ended.
func (x *Index) Requests(ctx context.Context, f Filter) (page Page, err error) {
	end := place{at: 1 << 62}
	if f.Before != "" {
		if _, err := fmt.Sscanf(string(f.Before), "%d-%d", &end.at, &end.n); err != nil {
			return page, ErrCursor
		}
	}
	if !f.Until.IsZero() && f.Until.UnixMicro() <= end.at {
		end = place{at: f.Until.UnixMicro()}
	}
	limit := cmp.Or(f.Limit, 50)
	err = x.ask(ctx, func(q question) error {
		const listed = "SELECT " + rowColumns + " FROM request WHERE kind = ? AND (at, n) < (?, ?) AND at >= ? ORDER BY at DESC, n DESC LIMIT ?"
		for number, k := range q.kinds { // each is in order in the file, and there are few
			if k.Count == 0 || !f.wants(k.Kind) {
				continue
			}
			rows, err := q.rows(listed, number, end.at, end.n, since(f.Since), limit+1)
			if err != nil {
				return err
			}
			page.Rows = append(page.Rows, rows...)
		}
		return nil
	})
	slices.SortFunc(page.Rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(b.place.at, a.place.at), cmp.Compare(b.place.n, a.place.n))
	})
	if len(page.Rows) > limit {
		page.Rows = page.Rows[:limit]
		last := page.Rows[limit-1].place
		page.Next = Cursor(fmt.Sprintf("%d-%d", last.at, last.n))
	}
	return page, err
}

// since is a time as rows have it; none is before all.
func since(t time.Time) int64 {
	if t.IsZero() {
		return -1 << 62
	}
	return t.UnixMicro()
}

// Request returns the requests that have an id, one for each operation at most.
func (x *Index) Request(ctx context.Context, id string) (rows []Row, err error) {
	err = x.ask(ctx, func(q question) error {
		rows, err = q.rows("SELECT "+rowColumns+" FROM request WHERE id = ?", id)
		return err
	})
	return rows, err
}

// rowColumns are the columns of a row, in the order in which rows reads them.
const rowColumns = "n, id, kind, at, seq, began, attempt, http, dead"

func (q question) rows(text string, args ...any) (all []Row, err error) {
	rows, err := q.tx.QueryContext(q.ctx, text, args...)
	err = each(rows, err, func() error {
		var r Row
		var kind, began int64
		err := rows.Scan(&r.place.n, &r.RequestID, &kind, &r.place.at, &r.Sequence, &began, &r.Attempt, &r.HTTPStatus, &r.DeadLetter)
		r.Kind, r.At, r.Began = q.kinds[kind].Kind, time.UnixMicro(r.place.at).UTC(), time.UnixMicro(began).UTC()
		all = append(all, r)
		return err
	})
	return all, err
}

// allKinds asks for what kindsOf reads.
const allKinds = "SELECT kind, requests, " + kindColumns + " FROM kind"

func kindsOf(rows *sql.Rows, err error) (map[int64]Count, error) {
	all := map[int64]Count{}
	return all, each(rows, err, func() error {
		var number int64
		var c Count
		err := rows.Scan(&number, &c.Count, &c.Operation, &c.State, &c.Reason, &c.Outcome, &c.Class, &c.Dead, &c.Seen)
		all[number] = c
		return err
	})
}
