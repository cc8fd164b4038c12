package index

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"errand/internal/names"
	"errand/pkg/messages"
)

// Found is a request that names what was looked for.
type Found struct {
	Row
	As []names.As `json:"as"` // how it names it; names.ID for its id
	// Mail is what the sending log last said of the mail to the address; nil when it says
	// nothing of it yet, or the word is not a recipient of the request.
	Mail *Mail `json:"mail,omitempty"`
}

// Mail is what the sending log says of the mail to an address.
type Mail struct {
	State    messages.State `json:"state"` // delivered, deferred, bounced, unknown
	SMTP     int            `json:"smtp,omitempty"`
	At       time.Time      `json:"at"`       // when it was seen there
	Sequence uint64         `json:"sequence"` // of the event in MAIL_DELIVERIES
}

// Finding is what was found, the newest first.
type Finding struct {
	Found []Found `json:"found"`
	// Mails are rows of the sending log that name it and match no request.
	Mails []Mail `json:"mails,omitempty"`
	// Unread are the ids of the secrets that records of recipients have and that are not known here: whether they hold
	// the address cannot be told.
	Unread []string `json:"unread,omitempty"`
}

// findLimit is how many requests and rows of the sending log are returned.
const findLimit = 500

// Find returns what has a word as its request id or names it, as inspect.Reader.Find does, without the queues: the
// newest 500 of each way to name it.
func (x *Index) Find(ctx context.Context, word string) (Finding, error) {
	found := Finding{Found: []Found{}}
	err := x.ask(ctx, func(q question) error {
		s := &search{question: q, found: map[int64]*Found{}}
		err := x.find(s, strings.TrimSpace(word), &found)
		for _, f := range s.found {
			found.Found = append(found.Found, *f)
		}
		return err
	})
	slices.SortFunc(found.Found, func(a, b Found) int {
		return cmp.Or(cmp.Compare(b.place.at, a.place.at), cmp.Compare(b.place.n, a.place.n))
	})
	return found, err
}

type search struct {
	question
	found map[int64]*Found // by n
}

func (x *Index) find(q *search, word string, into *Finding) error {
	if err := q.add(names.ID, "SELECT "+rowColumns+" FROM request WHERE id = ?", word); err != nil {
		return err
	}
	h := newHasher(x.hash.key)
	for _, n := range names.NewWord(word).Names() {
		if n.Key == "" {
			continue
		}
		if err := q.named(h.name(n), n.As); err != nil {
			return err
		}
		if n.As == names.Recipient {
			if err := q.mails(h.name(n), into); err != nil {
				return err
			}
		}
	}
	if !strings.Contains(word, "@") {
		return nil
	}
	rows, err := q.tx.QueryContext(q.ctx, "SELECT id FROM secret ORDER BY id")
	var ids []string
	if err := each(rows, err, func() error {
		ids = append(ids, "")
		return rows.Scan(&ids[len(ids)-1])
	}); err != nil {
		return err
	}
	for _, id := range ids {
		s := x.secrets.Of(q.ctx, id)
		if s == nil {
			into.Unread = append(into.Unread, id)
		} else if err := q.named(h.recipient(id, s.KeyOf(word)), names.Recipient); err != nil {
			return err
		}
	}
	return nil
}

func (q *search) named(hash int64, as names.As) error {
	const named = "SELECT " + rowColumns + " FROM request WHERE n IN" +
		" (SELECT n FROM name WHERE hash = ? AND what = ? ORDER BY n DESC LIMIT ?)"
	return q.add(as, named, hash, slices.Index(whats, as), findLimit)
}

// add adds the requests that a query returns.
func (q *search) add(as names.As, query string, args ...any) error {
	rows, err := q.rows(query, args...)
	for _, row := range rows {
		f := q.found[row.place.n]
		if f == nil {
			f = &Found{Row: row}
			q.found[row.place.n] = f
		}
		if !slices.Contains(f.As, as) {
			f.As = append(f.As, as)
		}
	}
	return err
}

// mails adds what the sending log says of the mail to an address: to its request the last
// of it, and what belongs to none by itself.
func (q *search) mails(hash int64, into *Finding) error {
	last := map[int64]*Mail{}
	rows, err := q.tx.QueryContext(q.ctx, "SELECT n, state, smtp, at, seq FROM mail WHERE hash = ? ORDER BY seq DESC LIMIT ?", hash, findLimit)
	err = each(rows, err, func() error {
		var n, at int64
		var m Mail
		err := rows.Scan(&n, &m.State, &m.SMTP, &at, &m.Sequence)
		m.At = time.UnixMicro(at).UTC()
		if n == 0 {
			into.Mails = append(into.Mails, m)
		} else if last[n] == nil {
			last[n] = &m
		}
		return err
	})
	for n, m := range last {
		if err == nil { // it is found as well where the keys of its call are made with an unknown secret
			err = q.add(names.Recipient, "SELECT "+rowColumns+" FROM request WHERE n = ?", n)
		}
		if f := q.found[n]; f != nil {
			f.Mail = m
		}
	}
	return err
}
