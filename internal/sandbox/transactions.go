package sandbox

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// recordsPerPage is the only page size that the document shows.
const recordsPerPage = 25

// transactions lists the enrollments, newest first (the document promises no
// order). An unreadable page number means the first page.
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

func (f filter) matches(n int, e *enrollment, now time.Time) bool {
	if f.status != "" && f.status != strconv.Itoa(int(e.status(now))) {
		return false
	}
	if f.reference != "" && f.reference != number("EXR", n) {
		return false
	}
	if f.email != "" {
		v := e.values()
		return v[fPayerEmail] == f.email
	}
	return true
}

// numbered is an enrollment with its number.
type numbered struct {
	enrollment
	n int
}

// list returns one page of the enrollments that match a filter, newest first,
// beginning with index first, and the number of all that match.
func (l *registry) list(want filter, now time.Time, first int) (page []numbered, total int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	visit := func(n int) {
		if e := &l.rows[n]; want.matches(n, e, now) {
			if total >= first && total < first+recordsPerPage {
				page = append(page, numbered{*e, n})
			}
			total++
		}
	}
	if want.order != "" {
		for _, n := range l.of(want.order) {
			visit(n)
		}
		return page, total
	}
	for n := range slices.Backward(l.rows) {
		visit(n)
	}
	return page, total
}

// appendTransaction appends the document's transaction record.
func (s *Sandbox) appendTransaction(dst []byte, e *numbered, now time.Time) []byte {
	v, status := e.values(), e.status(now)
	exchange := ""
	if status == txApproved || status == txFailed {
		exchange = number("EXT", e.n)
	}
	dst = append(dst, '{')
	dst = appendFields(dst,
		"id", number("TXN", e.n),
		"transaction_type", "Enrollment",
		"created_at", time.UnixMilli(e.at).In(s.zone).Format(time.DateTime),
		"payer_name", v[fPayerName],
		"payer_email", v[fPayerEmail],
		"payer_telephone_number", v[fPayerTelephoneNumber],
		"order_number", e.order,
		"currency", "MYR")
	dst = append(appendCents(append(dst, `"amount":`...), e.cents), ',')
	dst = appendFields(dst,
		"exchange_reference_number", number("EXR", e.n),
		"exchange_transaction_id", exchange,
		"payer_bank_name", bankName)
	dst = fmt.Appendf(dst, `"status":%d,`, status)
	dst = appendFields(dst, "status_description", txLabels[status], "return_url", v[fReturnURL])
	dst = append(dst, `"metadata":`...)
	if v[fMetadata] == "" {
		dst = append(dst, "null"...)
	} else {
		dst = appendText(dst, v[fMetadata])
	}
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
	dst = fmt.Appendf(dst, `,"status":%d,`, e.mandate)
	dst = appendFields(dst, "status_description", mandateLabels[e.mandate])
	dst[len(dst)-1] = '}'
	return append(dst, '}')
}

const bankName = "Sandbox Bank"

// frequency is the label of a frequency_mode. The document shows only that of MT;
// the others are assumed. An unknown code is its own label.
func frequency(code string) string {
	switch code {
	case "DL":
		return "Daily"
	case "WK":
		return "Weekly"
	case "MT":
		return "Monthly"
	case "YR":
		return "Yearly"
	}
	return code
}

// appendPages appends links and meta. Like the upstream's, the links drop the
// filters: only their page number is useful.
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
