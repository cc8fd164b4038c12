package sandbox

import (
	"cmp"
	"fmt"
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
	body := append(make([]byte, 0, 2048*len(rows)+1024), `{"data":[`...)
	for i := range rows {
		if i > 0 {
			body = append(body, ',')
		}
		body = s.appendTransaction(body, &rows[i], now)
	}
	body = append(body, `],`...)
	body = appendPages(body, c.base+"/v3/mandates/transactions", page, total, len(rows))
	return answer{status: http.StatusOK, body: append(body, '}')}
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
	if f.email != "" {
		v := r.values()
		return v[fPayerEmail] == f.email
	}
	return true
}

// record is an enrollment with its number, or a deduction on its mandate.
type record struct {
	enrollment
	n int

	deduction *deduction // nil: it is the application
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

// appendTransaction appends the document's transaction record.
func (s *Sandbox) appendTransaction(dst []byte, e *record, now time.Time) []byte {
	v, status := e.values(), e.status(now)
	at, order, exchange := e.at, e.order, ""
	if e.deduction != nil {
		at, order = e.deduction.at, e.order+"-"+strconv.Itoa(int(e.deduction.cycle))
	}
	if status == txApproved || status == txFailed {
		exchange = e.reference("EXT")
	}
	dst = append(dst, '{')
	dst = appendFields(dst,
		"id", e.reference("TXN"),
		"transaction_type", e.kind(),
		"created_at", time.UnixMilli(at).In(s.zone).Format(time.DateTime),
		"payer_name", v[fPayerName],
		"payer_email", v[fPayerEmail],
		"payer_telephone_number", v[fPayerTelephoneNumber],
		"order_number", order,
		"currency", "MYR")
	dst = append(appendCents(append(dst, `"amount":`...), e.cents), ',')
	dst = appendFields(dst,
		"exchange_reference_number", e.reference("EXR"),
		"exchange_transaction_id", exchange,
		"payer_bank_name", bankName)
	dst = fmt.Appendf(dst, `"status":%d,`, status)
	dst = appendFields(dst, "status_description", txLabels[status], "return_url", v[fReturnURL])
	metadata := []byte("null")
	if v[fMetadata] != "" {
		metadata = appendText(nil, v[fMetadata])
	}
	dst = append(append(dst, `"metadata":`...), metadata...)
	dst = append(dst, `,"payout":{"reference_number":null},`...)
	dst = append(dst, `"payment_gateway":{"id":5,"name":"Direct Debit","code":"DD"},"portal":"Sandbox Portal",`...)
	dst = append(dst, `"merchant":{"name":"Sandbox Merchant","email":"merchant@sandbox.test"},"mandate":{`...)
	dst = appendFields(dst,
		"id", number("MDT", e.n),
		"mandate_reference_number", number("MRN", e.n),
		"order_number", e.order,
		"frequency_mode", v[fFrequencyMode],
		"frequency_mode_label", frequency(v[fFrequencyMode]))
	dst = appendCents(append(dst, `"amount":`...), e.cents)
	dst = fmt.Appendf(dst, `,"status":%d,`, e.mandateStatus(now))
	dst = appendFields(dst, "status_description", mandateLabels[e.mandateStatus(now)])
	dst[len(dst)-1] = '}'
	return append(dst, '}')
}

const bankName = "Sandbox Bank"

var frequencies = map[string]string{"DL": "Daily", "WK": "Weekly", "MT": "Monthly", "YR": "Yearly"}

// frequency is the label of a frequency_mode; an unknown code is its own. The document shows only the label of MT.
func frequency(code string) string { return cmp.Or(frequencies[code], code) }

// appendPages appends links and meta. Like the upstream's, the links drop the filters.
func appendPages(dst []byte, path string, page, total, shown int) []byte {
	lastPage := max(1, (total+recordsPerPage-1)/recordsPerPage)
	from, to := "null", "null" // of an empty page; assumed
	if shown > 0 {
		from = strconv.Itoa((page-1)*recordsPerPage + 1)
		to = strconv.Itoa((page-1)*recordsPerPage + shown)
	}
	at := func(n int) string {
		if n < 1 || n > lastPage {
			return "null"
		}
		return string(appendText(nil, path+"?page="+strconv.Itoa(n)))
	}
	dst = fmt.Appendf(dst, `"links":{"first":%s,"last":%s,"prev":%s,"next":%s},`, at(1), at(lastPage), at(page-1), at(page+1))
	return fmt.Appendf(dst, `"meta":{"current_page":%d,"from":%s,"last_page":%d,"per_page":%d,"to":%s,"total":%d,"path":%s}`,
		page, from, lastPage, recordsPerPage, to, total, appendText(nil, path))
}
