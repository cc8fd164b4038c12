package sandbox

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// recordsPerPage is the only page size that the document shows.
const recordsPerPage = 25

// transactions lists enrollments and deductions, newest first (the document promises no order). An unreadable page number
// means the first page.
func (s *Sandbox) transactions(c *call) answer {
	query := c.r.URL.Query()
	page := positiveInt(query.Get("page"), 1)
	now := time.Now()
	want := filter{
		order: query.Get("order_number"), status: query.Get("status"),
		reference: query.Get("exchange_reference_number"), email: query.Get("payer_email"),
	}

	first := (page - 1) * recordsPerPage
	rows, total := s.registry.list(want, now, first)
	data := make([]json.RawMessage, len(rows))
	for i := range rows {
		data[i] = s.transaction(&rows[i], now)
	}
	links, meta := pagesOf(c.base+"/v3/mandates/transactions", page, total, len(rows))
	return answer{status: http.StatusOK, body: object("data", data, "links", links, "meta", meta)}
}

// positiveInt reads a query parameter that counts from 1.
func positiveInt(text string, otherwise int) int {
	if n, err := strconv.ParseInt(text, 10, 32); err == nil && n >= 1 {
		return int(n)
	}
	return otherwise
}

// filter narrows the list; "" matches everything.
type filter struct{ order, status, reference, email string }

func (f filter) matches(r *record, now time.Time) bool {
	if f.status != "" && f.status != strconv.Itoa(int(r.status(now))) {
		return false
	}
	if f.reference != "" && f.reference != r.reference("EXR") {
		return false
	}
	return f.email == "" || f.email == r.values()["payer_email"]
}

// record is an enrollment with its number, or a deduction on its mandate.
type record struct {
	enrollment
	n int

	deduction *deduction // nil means that it is the application
	d         int        // its number
}

// record returns the record at a place in the list. The caller holds the lock.
func (l *registry) record(place int32) record {
	if place > 0 {
		return record{enrollment: l.rows[place-1], n: int(place) - 1}
	}
	d := l.deductions[-place-1]
	return record{enrollment: l.rows[d.enrollment], n: int(d.enrollment), deduction: &d, d: int(-place) - 1}
}

func (r *record) status(now time.Time) uint8 {
	if r.deduction != nil {
		return r.deduction.status
	}
	return r.enrollment.status(now)
}

func (r *record) kind() string {
	if r.deduction != nil {
		return "Deduction"
	}
	return "Enrollment"
}

// reference is one of the record's own numbers; a deduction's have a D behind the prefix.
func (r *record) reference(prefix string) string {
	if r.deduction != nil {
		return number(prefix+"D", r.d)
	}
	return number(prefix, r.n)
}

// list returns one page of the records that match a filter, newest first, beginning with index first, and how many match.
func (l *registry) list(want filter, now time.Time, first int) (page []record, total int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	visit := func(place int32) {
		if r := l.record(place); want.matches(&r, now) {
			if total >= first && total < first+recordsPerPage {
				page = append(page, r)
			}
			total++
		}
	}
	if want.order != "" {
		numbers := l.of(want.order)
		for i, d := range slices.Backward(l.deductions) {
			if slices.Contains(numbers, int(d.enrollment)) {
				visit(-int32(i) - 1)
			}
		}
		for _, n := range numbers {
			visit(int32(n) + 1)
		}
		return page, total
	}
	for _, place := range slices.Backward(l.listed) {
		visit(place)
	}
	return page, total
}

// transaction is the document's transaction record.
func (s *Sandbox) transaction(r *record, now time.Time) json.RawMessage {
	v, status, mandate := r.values(), r.status(now), r.mandateStatus(now)
	at, order, exchange := r.at, r.order, ""
	if r.deduction != nil {
		at, order = r.deduction.at, r.order+"-"+strconv.Itoa(int(r.deduction.cycle))
	}
	if status == txApproved || status == txFailed {
		exchange = r.reference("EXT")
	}
	var metadata any
	if v["metadata"] != "" {
		metadata = v["metadata"]
	}
	return object(
		"id", r.reference("TXN"),
		"transaction_type", r.kind(),
		"created_at", time.UnixMilli(at).In(s.zone).Format(time.DateTime),
		"payer_name", v["payer_name"],
		"payer_email", v["payer_email"],
		"payer_telephone_number", v["payer_telephone_number"],
		"order_number", order,
		"currency", "MYR",
		"amount", r.amount(),
		"exchange_reference_number", r.reference("EXR"),
		"exchange_transaction_id", exchange,
		"payer_bank_name", bankName,
		"status", status,
		"status_description", txLabels[status],
		"return_url", v["return_url"],
		"metadata", metadata,
		"payout", object("reference_number", nil),
		"payment_gateway", object("id", 5, "name", "Direct Debit", "code", "DD"),
		"portal", "Sandbox Portal",
		"merchant", object("name", "Sandbox Merchant", "email", "merchant@sandbox.test"),
		"mandate", object(
			"id", number("MDT", r.n),
			"mandate_reference_number", number("MRN", r.n),
			"order_number", r.order,
			"frequency_mode", v["frequency_mode"],
			"frequency_mode_label", frequency(v["frequency_mode"]),
			"amount", r.amount(),
			"status", mandate,
			"status_description", mandateLabels[mandate]))
}

const bankName = "Sandbox Bank"

var frequencies = map[string]string{"DL": "Daily", "WK": "Weekly", "MT": "Monthly", "YR": "Yearly"}

// frequency is the label of a frequency_mode; an unknown code is its own. The document shows only the label of MT.
func frequency(code string) string { return cmp.Or(frequencies[code], code) }

// pagesOf returns links and meta of a page. Like the upstream's, the links drop the filters.
func pagesOf(path string, page, total, shown int) (links, meta json.RawMessage) {
	lastPage := max(1, (total+recordsPerPage-1)/recordsPerPage)
	var from, to any // null for an empty page; assumed
	if shown > 0 {
		from, to = (page-1)*recordsPerPage+1, (page-1)*recordsPerPage+shown
	}
	at := func(n int) any {
		if n < 1 || n > lastPage {
			return nil
		}
		return path + "?page=" + strconv.Itoa(n)
	}
	return object("first", at(1), "last", at(lastPage), "prev", at(page-1), "next", at(page+1)),
		object("current_page", page, "from", from, "last_page", lastPage, "per_page", recordsPerPage, "to", to, "total", total, "path", path)
}
