package index

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"errand/pkg/messages"
)

// writer puts batches into the file, each in one transaction with the position that it is
// read up to. It is used by one goroutine.
type writer struct {
	conn       *sql.Conn
	statements map[string]*sql.Stmt
	kinds      map[Kind]int64
	requests   map[int64]int64 // by how many the requests of a kind changed in this transaction
	next       int64           // n of the next row of a request: none is ever used again
}

func newWriter(s *store) (*writer, error) {
	conn, err := s.write.Conn(background)
	if err != nil {
		return nil, fmt.Errorf("index: %w", err)
	}
	w := &writer{conn: conn, statements: map[string]*sql.Stmt{}}
	if err := w.load(); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

// background is for statements: no context ends one. Each is short, and to watch a context
// takes longer than most of them.
var background = context.Background()

func (w *writer) close() error {
	var errs []error
	for _, s := range w.statements {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, w.conn.Close())...)
}

func (w *writer) statement(text string) (*sql.Stmt, error) {
	if s := w.statements[text]; s != nil {
		return s, nil
	}
	s, err := w.conn.PrepareContext(background, text)
	if err == nil {
		w.statements[text] = s
	}
	return s, err
}

func (w *writer) exec(text string, args ...any) error {
	s, err := w.statement(text)
	if err == nil {
		_, err = s.ExecContext(background, args...)
	}
	return err
}

// row reads one row into what to points to. It reports whether there is one.
func (w *writer) row(text string, args []any, to ...any) (bool, error) {
	s, err := w.statement(text)
	if err == nil {
		err = s.QueryRowContext(background, args...).Scan(to...)
	}
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// within runs work in a transaction. When it fails everything is as it was before.
func (w *writer) within(work func() error) error {
	err := w.exec("BEGIN IMMEDIATE")
	if err != nil {
		return fmt.Errorf("index: %w", err)
	}
	clear(w.requests)
	if err = work(); err == nil {
		err = w.count()
	}
	if err == nil {
		err = w.exec("COMMIT")
	}
	if err == nil {
		return nil
	}
	_ = w.exec("ROLLBACK") // it may be over already
	return fmt.Errorf("index: %w", errors.Join(err, w.load()))
}

// load reads what a writer knows by heart.
func (w *writer) load() error {
	kinds, err := kindsOf(w.conn.QueryContext(background, allKinds))
	w.kinds, w.requests = map[Kind]int64{}, map[int64]int64{}
	for n, c := range kinds {
		w.kinds[c.Kind] = n
	}
	if err != nil {
		return err
	}
	const last = "SELECT value AS n FROM meta WHERE name = 'last' UNION ALL SELECT coalesce(max(n), 0) FROM request"
	_, err = w.row("SELECT max(n) + 1 FROM ("+last+")", nil, &w.next)
	return err
}

// put writes a batch of a stream that ends with the message of a position.
func (w *writer) put(b *batch, p Position) error {
	return w.within(func() error {
		for _, r := range b.order {
			if err := w.request(r); err != nil {
				return err
			}
		}
		if err := errors.Join(w.names(b.names), w.rows(b.rows), w.forget(b), w.tallies(b.tally)); err != nil {
			return err
		}
		for id := range b.secrets {
			if err := w.exec("INSERT OR IGNORE INTO secret VALUES (?)", id); err != nil {
				return err
			}
		}
		return w.position(p)
	})
}

func (w *writer) position(p Position) error {
	return w.exec("INSERT OR REPLACE INTO position VALUES (?, ?, ?, ?)", p.Stream, p.Created.UnixNano(), int64(p.Indexed), p.At.UnixNano())
}

func (w *writer) request(r *news) error {
	var was int64
	old := news{key: r.key, began: r.began}
	const known = "SELECT n, kind, at, seq, began, attempt, http, dead, ended, seen FROM request WHERE id = ? AND operation = ?"
	found, err := w.row(known, []any{r.id, numberOf(r.operation)},
		&old.n, &was, &old.at, &old.seq, &old.began, &old.attempt, &old.http, &old.dead, &old.ended, &old.seen)
	if err != nil {
		return err
	}
	now := old
	if now.Kind = expired(r.operation); found {
		now.Kind = w.kindOf(was)
	}
	if r.seq > old.seq {
		now.Kind, now.seq, now.at, now.attempt, now.http = r.Kind, r.seq, r.at, r.attempt, r.http
	}
	now.left(r.dead, r.ended)
	now.seen = max(old.seen, r.seen)
	if r.erased = now.State == messages.Erased; r.erased {
		now.dead = 0
	}
	now.Dead, now.Seen = now.dead > 0, now.dead > 0 && now.seen >= now.dead
	if now.seq == 0 { // its history is gone, or not read yet
		now.at = max(old.at, r.began)
	}
	kind, err := w.kind(now.Kind)
	if err != nil {
		return err
	}
	if !found {
		now.n = w.next
		w.next++
		w.requests[kind]++
		err = w.exec("INSERT INTO request VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
			now.n, r.id, numberOf(r.operation), kind, now.at, now.seq, now.began, now.attempt, now.http, now.dead, now.ended, now.seen)
	} else if now.seq != old.seq || now.dead != old.dead || now.seen != old.seen {
		w.requests[was]--
		w.requests[kind]++
		err = w.exec("UPDATE request SET kind = ?, at = ?, seq = ?, attempt = ?, http = ?, dead = ?, ended = ?, seen = ? WHERE n = ?",
			kind, now.at, now.seq, now.attempt, now.http, now.dead, now.ended, now.seen, now.n)
	}
	r.n = now.n
	return err
}

func (w *writer) kind(k Kind) (int64, error) {
	if n, ok := w.kinds[k]; ok {
		return n, nil
	}
	n := int64(len(w.kinds)) + 1
	err := w.exec("INSERT INTO kind (kind, "+kindColumns+") VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
		n, k.Operation, k.State, k.Reason, k.Outcome, k.Class, k.Dead, k.Seen)
	if err == nil {
		w.kinds[k] = n
	}
	return n, err
}

// kindOf is the kind of a number, a zero one when there is none.
func (w *writer) kindOf(number int64) Kind {
	for k, n := range w.kinds {
		if n == number {
			return k
		}
	}
	return Kind{}
}

// count notes how many requests are of each kind now.
func (w *writer) count() error {
	for kind, n := range w.requests {
		if err := w.exec("UPDATE kind SET requests = requests + ? WHERE kind = ?", n, kind); err != nil {
			return err
		}
	}
	return w.exec("INSERT OR REPLACE INTO meta VALUES ('last', ?)", w.next-1)
}

func (w *writer) forget(b *batch) error {
	var gone, rows []int64
	for _, r := range b.order {
		if r.erased {
			gone = append(gone, r.n)
		}
	}
	for _, row := range b.erased {
		if row.of == nil || !row.of.erased { // else it goes with its request
			rows = append(rows, row.event)
		}
	}
	for _, f := range []struct {
		of   []int64
		text string
	}{
		{gone, "DELETE FROM name WHERE n IN (SELECT value FROM json_each(?))"},
		{gone, "DELETE FROM message WHERE n IN (SELECT value FROM json_each(?))"},
		{rows, "DELETE FROM message WHERE event IN (SELECT value FROM json_each(?))"},
	} {
		if len(f.of) == 0 {
			continue
		}
		list, _ := json.Marshal(f.of) // numbers always encode
		if err := w.exec(f.text, string(list)); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) names(all []name) error {
	slices.SortFunc(all, func(a, b name) int { return cmp.Compare(a.hash, b.hash) }) // side by side in the file
	for i, n := range all {
		if i > 0 && n == all[i-1] || n.of.erased {
			continue
		}
		if err := w.exec("INSERT OR IGNORE INTO name VALUES (?, ?, ?)", n.hash, n.what, n.of.n); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) rows(all []row) error {
	for _, r := range all {
		of := cmp.Or(r.of, &news{})
		if of.erased {
			continue
		}
		if err := w.exec("INSERT OR REPLACE INTO message VALUES (?, ?, ?, ?, ?)", r.stream, r.seq, r.hash, r.event, of.n); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) tallies(all map[tally]int) error {
	for t, n := range all {
		kind, err := w.kind(t.Kind)
		if err == nil {
			err = w.exec("INSERT INTO tally VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET events = events + excluded.events", t.slot, kind, n)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
