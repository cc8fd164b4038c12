package index

import (
	"context"
	"database/sql"
	"slices"
	"strings"

	"errand/internal/bus"
	"errand/internal/names"
)

// findLimit is how many requests and messages are returned of each way to name what was asked for.
const findLimit = 500

// Find returns what the index knows of a word: inspect.Reader.Find makes an answer of it.
func (x *Index) Find(ctx context.Context, asked bus.Sought) (known bus.Known, err error) {
	return known, x.ask(ctx, func(q question) error {
		known = bus.Known{Through: map[string]uint64{}} // one state of the index
		rows, err := q.tx.QueryContext(ctx, "SELECT stream, seq FROM position")
		err = each(rows, err, func() error {
			var stream string
			var seq uint64
			err := rows.Scan(&stream, &seq)
			known.Through[stream] = seq
			return err
		})
		if err == nil {
			err = q.find(x, asked, &known)
		}
		return err
	})
}

func (q question) find(x *Index, asked bus.Sought, known *bus.Known) error {
	word, h := strings.TrimSpace(asked.Word), newHasher(x.hash.key)
	if err := q.add(known, names.ID, "SELECT kind, id, NULL, 0 FROM request WHERE id = ?", word); err != nil {
		return err
	}
	var looked []int64
	for _, n := range names.NewWord(word).Names() {
		if n.Key == "" {
			continue
		}
		hash := h.name(n)
		if err := q.named(known, hash, n.As); err != nil {
			return err
		}
		if slices.Contains(looked, hash) {
			continue
		}
		looked = append(looked, hash)
		const one = "SELECT n, stream, max(seq) AS place FROM message WHERE hash = ?1 AND n > 0 GROUP BY n UNION ALL" +
			" SELECT 0, stream, seq FROM message WHERE hash = ?1 AND n = 0"
		const located = "SELECT kind, id, stream, place FROM (" + one + ") LEFT JOIN request USING (n) ORDER BY place DESC LIMIT ?2"
		if err := q.add(known, names.Recipient, located, hash, findLimit); err != nil {
			return err
		}
	}
	if !strings.Contains(word, "@") {
		return nil
	}
	rows, err := q.tx.QueryContext(q.ctx, "SELECT id FROM secret ORDER BY id")
	var ids []string
	err = each(rows, err, func() error {
		ids = append(ids, "")
		return rows.Scan(&ids[len(ids)-1])
	})
	for _, id := range ids {
		if key := asked.Keys[id]; key == 0 {
			known.Unread = append(known.Unread, id)
		} else if err == nil {
			err = q.named(known, h.recipient(id, key), names.Recipient)
		}
	}
	return err
}

func (q question) named(known *bus.Known, hash int64, as names.As) error {
	const named = "SELECT kind, id, NULL, 0 FROM name JOIN request USING (n) WHERE hash = ? AND what = ? ORDER BY n DESC LIMIT ?"
	return q.add(known, as, named, hash, slices.Index(whats, as), findLimit)
}

// add adds the requests and messages that a query returns.
func (q question) add(known *bus.Known, as names.As, query string, args ...any) error {
	rows, err := q.tx.QueryContext(q.ctx, query, args...)
	n := 0
	err = each(rows, err, func() error {
		var kind, stream sql.NullInt64
		var id sql.NullString
		var seq uint64
		err := rows.Scan(&kind, &id, &stream, &seq)
		n++
		r := bus.KnownRequest{Operation: q.kinds[kind.Int64].Operation, ID: id.String, As: string(as)}
		if id.Valid && !slices.Contains(known.Requests, r) {
			known.Requests = append(known.Requests, r)
		}
		if stream.Valid {
			known.Messages = append(known.Messages, bus.Place{Stream: followed[stream.Int64], Sequence: seq})
		}
		return err
	})
	known.More = known.More || n == findLimit
	return err
}
