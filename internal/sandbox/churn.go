package sandbox

import (
	"encoding/json"
	"math"
	"slices"
	"time"
)

// lostRow is a row that was taken out of the log.
type lostRow struct {
	row
	at int64 // when, milliseconds since 1970
}

// churn is what happens to the log before a page of it is given. It gives how many
// rows a page has at most. The caller holds the lock.
func (o *outbox) churn(v *Settings, now time.Time) (most int) {
	if o.draw() < v.LogLosses && len(o.log) > 0 {
		at := int(o.draw() * float64(len(o.log)))
		o.lost = append(o.lost, lostRow{o.log[at], now.UnixMilli()})
		o.log = slices.Delete(o.log, at, at+1)
		o.shuffled = shuffle{}
	}
	if o.draw() < v.LogLate {
		late := time.Duration(o.draw() * float64(v.LogLateBy))
		o.put(map[string]json.RawMessage{}, now.Add(-late), foreignRow{state: Delivered, entered: now.UnixMilli()}, false)
	}
	if most = v.LogCap; v.LogCapVaries {
		most -= int(o.draw() * float64(most/2+1))
	}
	return most
}

// draw is the next of the log's own numbers, at least 0 and less than 1.
func (o *outbox) draw() float64 {
	o.drawn++
	return float64(mix(o.seed^mix(o.drawn))>>1) / (math.MaxInt64 + 1.0)
}

// forms of the two fields of a row that the documents show in more than one.
type forms struct{ status, delivered uint64 }

// formsOf are those of a row: the same each time, whatever its state.
func (o *outbox) formsOf(r row, v *Settings) forms {
	if v.LogForms {
		drawn := mix(o.seed ^ r.key())
		return forms{status: drawn % 3, delivered: drawn / 3 % 3}
	}
	if v.StatusText {
		return forms{status: asText}
	}
	return forms{}
}

// The forms; 0 is the document's.
const (
	asText   = 1 // status: JSON in a string
	leftOut  = 2 // status: not there, of a delivered row
	asDigit  = 1 // delivered: "1"
	asAnswer = 2 // delivered: true
)

func (r row) key() uint64 { return uint64(r.message)<<32 | uint64(r.recipient) }

// appendForms appends the two fields: delivered is a number, status an object, unless
// the forms are others.
func appendForms(dst []byte, f forms, delivered bool, status []byte) []byte {
	number := map[bool]string{true: "1", false: "0"}[delivered]
	switch f.delivered {
	case asDigit:
		number = `"` + number + `"`
	case asAnswer:
		number = map[bool]string{true: "true", false: "false"}[delivered]
	}
	dst = append(append(dst, `"delivered":`...), number...)
	switch {
	case f.status == leftOut && delivered:
		return dst
	case f.status == asText:
		return appendText(append(dst, `,"status":`...), string(status))
	}
	return append(append(dst, `,"status":`...), status...)
}
