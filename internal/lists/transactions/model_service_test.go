package transactions

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"errand/pkg/clients/mandate"
)

// pageOrder is the order in which pages show rows.
type pageOrder int

const (
	unordered pageOrder = iota
	newestFirst
	oldestFirst // which the sweeper takes for none
)

// service is an e-mandate service whose list grows and changes, also between two pages, and that lies about it.
type service struct {
	mu     *sync.Mutex
	random *rand.Rand
	order  pageOrder
	rows   []*transaction // oldest first
	gone   []*transaction
	made   int
	total  func(rows int) int // what pages say
	silent bool               // pages do not say how long they are
	busy   func()             // runs before each page is served
	// underWay runs while the answer is on its way.
	underWay func(shown []*transaction)
	pages    int
}

// transaction is a record of the list, in the states that it was in.
type transaction struct {
	id, kind string
	order    string // of its mandate
	own      string // its own order number
	request  string // whose it is; "" means another program's
	created  time.Time
	states   []state // the last one is the present one
	left     time.Time
	place    uint64 // in a list without order
	bare     bool   // it has no mandate
}

type state struct {
	status, mandate string // as they are in events
	since           time.Time
	excused         bool // it need not be published
}

// statuses are the states of transactions as the service writes them, by how events name them.
var statuses = map[string]string{
	"new": `"status":1,"status_description":"New"`, "approved": `"status":"3","status_description":"Approved"`,
	"failed":   `"status":2,"status_description":" FAILED! "`,
	"status_7": `"status":7,"status_description":null`, "status_erased": `"status":9,"status_description":"Erased"`,
	"status_4": `"status":4,"status_description":"取消"`,
	"bounced":  `"status":6,"status_description":"Bounced"`, "unmatched": `"status_description":"unmatched"`, "unknown": `"status":{}`,
}

// ofMandates are the states of mandates.
var ofMandates = map[string]string{"new": `"status":0,"status_description":"New"`, "active": `"status":3,"status_description":"Active"`,
	"terminated": `"status":"4","status_description":"Terminated"`, "inactive": `"status_description":"Inactive"`}

func (s *service) add(t *transaction, status string) *transaction {
	s.made++
	t.created, t.place = time.Now().Truncate(time.Second), s.random.Uint64()
	t.states = []state{{status: status, mandate: "new", since: time.Now()}}
	if t.bare {
		t.states[0].mandate = ""
	}
	at, _ := slices.BinarySearchFunc(s.rows, t, func(a, b *transaction) int { return a.created.Compare(b.created) })
	for at < len(s.rows) && !s.rows[at].created.After(t.created) {
		at++
	}
	s.rows = slices.Insert(s.rows, at, t)
	return t
}

func (t *transaction) is() state { return t.states[len(t.states)-1] }

// key names a record.
func (t *transaction) key() string { return t.kind + " " + t.id }

// spelled is an order number as the service may have stored it.
func (s *service) spelled(order string) string {
	switch s.random.IntN(4) {
	case 0:
		return strings.ToLower(order)
	case 1:
		return " " + strings.ReplaceAll(order, "-", " - ")
	}
	return order
}

func (s *service) json(t *transaction) json.RawMessage {
	m := "null"
	if !t.bare {
		m = fmt.Sprintf(`{"id":"M%s","order_number":%q,%s}`, t.id, s.spelled(t.order), ofMandates[t.is().mandate])
	}
	return json.RawMessage(fmt.Sprintf(`{"id":%q,"transaction_type":%q,"created_at":%q,"order_number":%q,%s,"mandate":%s}`,
		t.id, t.kind, t.created.In(kualaLumpur).Format(time.DateTime), s.spelled(t.own), statuses[t.is().status], m))
}

// perPage is the size of a page, whatever is asked for.
const perPage = 25

func (s *service) page(ctx context.Context, number int) (p mandate.Page, err error) {
	if err := ctx.Err(); err != nil {
		return p, err
	}
	time.Sleep(10 * time.Millisecond)
	shown := s.snapshot(func(rows []*transaction) []*transaction {
		if p.Total = s.total(len(rows)); !s.silent {
			p.PerPage = perPage
		}
		return rows[min((number-1)*perPage, len(rows)):min(number*perPage, len(rows))]
	}, &p.Records)
	time.Sleep(10 * time.Millisecond)
	s.mu.Lock()
	underWay := s.underWay
	s.mu.Unlock()
	if underWay != nil {
		underWay(shown)
	}
	return p, nil
}

// snapshot is a part of the list as it is now.
func (s *service) snapshot(part func([]*transaction) []*transaction, records *[]json.RawMessage) []*transaction {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pages++
	if s.busy != nil {
		s.busy()
	}
	rows := slices.Clone(s.rows)
	switch s.order {
	case newestFirst:
		slices.Reverse(rows)
	case unordered:
		slices.SortFunc(rows, func(a, b *transaction) int { return cmp.Compare(a.place, b.place) })
	}
	rows = part(rows)
	for _, t := range rows {
		*records = append(*records, s.json(t))
	}
	return rows
}

// lookUp is what the list shows of an order number.
func (s *service) lookUp(order string) (records []json.RawMessage) {
	s.snapshot(func(rows []*transaction) []*transaction {
		return slices.DeleteFunc(rows, func(t *transaction) bool { return t.order != order })
	}, &records)
	return records
}

// change has a record go on to another state, or back to one, or its mandate; not twice within the time that it takes to publish one.
func (s *service) change(t *transaction, excused bool) {
	is := t.is()
	next := map[string][]string{
		"new": {"approved", "failed", "status_7", "status_4"}, "status_7": {"approved",
			"status_erased"}, "status_4": {"new"}, "approved": {"bounced"}, "bounced": {"approved"}, "failed": {"unknown"},
	}[is.status]
	mandates := map[string][]string{"new": {"active"}, "active": {"terminated", "inactive"}, "terminated": {"active"},
		"inactive": {"terminated"}}[is.mandate]
	switch {
	case time.Since(is.since) < time.Minute || len(t.states) > 9 || s.random.IntN(2) == 0:
		return
	case len(mandates) > 0 && is.status != "new" && s.random.IntN(2) == 0:
		is.mandate = mandates[s.random.IntN(len(mandates))]
	case len(next) > 0:
		is.status = next[s.random.IntN(len(next))]
	default:
		return
	}
	is.since, is.excused = time.Now(), excused
	t.states = append(t.states, is)
}

func (s *service) remove(t *transaction) {
	t.left = time.Now()
	s.gone = append(s.gone, t)
	s.rows = slices.DeleteFunc(s.rows, func(other *transaction) bool { return other == t })
}

func (s *service) any() *transaction { return s.rows[s.random.IntN(len(s.rows))] }
