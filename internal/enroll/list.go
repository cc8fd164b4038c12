package enroll

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"

	"errand/internal/retry"
	"errand/pkg/clients/mandate"
)

// listing is what the transaction list shows under an order number.
type listing struct {
	records []json.RawMessage
	others  bool // it shows records of other order numbers: it is not narrowed
	cut     bool // there may be more than was read, or it shows fewer than it counts
	hidden  bool // nothing at all is listed, whatever the order number
}

// proof is what a listing proves of a call.
type proof int

const (
	nothing proof = iota
	listed
	notListed
)

func (l listing) proof() proof {
	switch {
	case len(l.records) > 0:
		return listed
	case l.others || l.cut || l.hidden:
		return nothing
	}
	return notListed
}

// flaw says why a listing without the order number proves nothing.
func (l listing) flaw() string {
	switch {
	case l.others:
		return "it is not narrowed to the order number"
	case l.cut:
		return "it is cut, or shows fewer records than it counts"
	}
	return "it shows nothing at all"
}

const (
	// maxPages bounds a look at a list that is not narrowed to the order number.
	maxPages = 40
	// maxEvidence is how many bytes of records an uncertain event carries, if there is more
	// than one.
	maxEvidence = 256 << 10
)

// list reads at most so many pages of the list under the order number of a filter. stop, which may be nil,
// ends the waits between its tries.
func list(ctx context.Context, stop <-chan struct{}, upstream *mandate.Client, p retry.Policy, filter mandate.Filter, pages int) (listing, error) {
	return retry.Read(ctx, stop, p, func(ctx context.Context) (found listing, err error) {
		size, read, total, missing := 0, 0, 0, false
		for page, err := range upstream.Transactions(ctx, filter, 1) {
			if err != nil {
				return listing{}, err
			}
			read, total, missing = read+len(page.Records), max(total, page.Total), page.Linked || page.LastPage > page.Number
			for _, record := range page.Records {
				if !about(record, filter.OrderNumber) { // an upstream that ignores the filter proves nothing
					found.others = true
					continue
				}
				if size += len(record); size <= maxEvidence || len(found.records) == 0 {
					found.records = append(found.records, record)
				}
			}
			if size >= maxEvidence || page.Number >= pages && page.More {
				found.cut = true
				break
			}
		}
		found.cut = found.cut || missing || read < total
		return found, nil
	})
}

// about reports whether a record is of an order number, its own or its mandate's. They are
// compared as text without regard to case and spaces: who stores them may have changed those.
func about(record json.RawMessage, order string) bool {
	var r struct {
		OrderNumber any `json:"order_number"`
		Mandate     any `json:"mandate"`
	}
	d := json.NewDecoder(bytes.NewReader(record))
	d.UseNumber()
	_ = d.Decode(&r) // unreadable: not ours
	mandate, _ := r.Mandate.(map[string]any)
	return same(r.OrderNumber, order) || same(mandate["order_number"], order)
}

func same(listed any, order string) bool {
	var text string
	switch v := listed.(type) {
	case string:
		text = v
	case json.Number:
		text = v.String()
	default:
		return false
	}
	return fold(text) == fold(order)
}

// fold leaves out what does not distinguish two order numbers.
func fold(order string) string {
	return strings.ToLower(strings.Join(strings.Fields(order), ""))
}
