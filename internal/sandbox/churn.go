package sandbox

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"time"
)

// lostRow is a row that was removed from the log.
type lostRow struct {
	row
	at int64 // when it was removed, milliseconds since 1970
}

// churn changes the log before a page is served, as the settings say, and returns the maximum number of rows of that page.
// The caller holds the lock.
func (o *outbox) churn(v *Settings, now time.Time) (maxRows int) {
	if o.draw() < v.LogLosses && len(o.log) > 0 {
		at := int(o.draw() * float64(len(o.log)))
		o.lost = append(o.lost, lostRow{o.log[at], now.UnixMilli()})
		o.log = slices.Delete(o.log, at, at+1)
		o.shuffled = shuffle{}
	}
	if o.draw() < v.LogLate {
		late := time.Duration(o.draw() * float64(v.LogLateBy))
		o.insert(map[string]json.RawMessage{}, now.Add(-late), foreignRow{state: Delivered, entered: now.UnixMilli()}, false)
	}
	if maxRows = v.LogCap; v.LogCapVaries {
		maxRows -= int(o.draw() * float64(maxRows/2+1))
	}
	return maxRows
}

// draw returns the log's next random number, at least 0 and less than 1.
func (o *outbox) draw() float64 {
	o.drawn++
	return float64(mix(o.seed^mix(o.drawn))>>1) / (math.MaxInt64 + 1.0)
}

// rowForms are the forms of the two fields of a row that the documents show in more than one form.
type rowForms struct{ status, delivered uint64 }

// formsOf returns the forms of a row: the same each time, whatever its state.
func (o *outbox) formsOf(r row, v *Settings) rowForms {
	if v.LogForms {
		drawn := mix(o.seed ^ r.key())
		return rowForms{status: drawn % 3, delivered: drawn / 3 % 3}
	}
	if v.StatusText {
		return rowForms{status: asText}
	}
	return rowForms{}
}

// The other forms; 0 is the document's.
const (
	asText  = 1 // status: JSON in a string
	leftOut = 2 // status: left out, of a delivered row only
	asDigit = 1 // delivered: "1" or "0"
	asBool  = 2 // delivered: true or false
)

func (r row) key() uint64 { return uint64(r.message)<<32 | uint64(r.recipient) }

// of are the two fields: delivered as a number and status as an object, unless f says otherwise.
func (f rowForms) of(delivered bool, status json.RawMessage) []any {
	number := 0
	if delivered {
		number = 1
	}
	fields := []any{"delivered", number}
	switch f.delivered {
	case asDigit:
		fields[1] = strconv.Itoa(number)
	case asBool:
		fields[1] = delivered
	}
	switch {
	case f.status == leftOut && delivered:
		return fields
	case f.status == asText:
		return append(fields, "status", string(status))
	}
	return append(fields, "status", status)
}
