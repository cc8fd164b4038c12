package mandate

import (
	"bytes"
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"errand/pkg/clients"
)

// Filter narrows the list; an empty field does not.
type Filter struct {
	OrderNumber             string
	Status                  string
	ExchangeReferenceNumber string
	PayerEmail              string
	Redact                  string // not a filter: a secret of the caller's, removed from what is listed
	Limit                   int64  // no filter: bytes of a page; more is a bad answer. 0: as many as fit a message, see clients.Request
}

// Page is one page of the list.
type Page struct {
	Number   int
	LastPage int  // 0: not given
	PerPage  int  // records of a full page; 0 if not given
	Total    int  // records under the filter; 0 if not given
	More     bool // another page follows
	Linked   bool // the answer links to another page, whatever else it says
	Records  []json.RawMessage
}

// lastPage bounds a list that never ends: a hundred thousand pages of 25 records.
const lastPage = 100_000

const list = "transactions"

// Transactions lists the transactions under filter, from page from (1 is the first) to the last one, a call a page. An error ends it. Only
// the existence of a next page is taken from the links of an answer: they drop the filters, and the token goes to no address
// that came in an answer.
func (c *Client) Transactions(ctx context.Context, filter Filter, from int) iter.Seq2[Page, error] {
	return func(yield func(Page, error) bool) {
		var before []json.RawMessage
		for number := max(from, 1); ; number++ {
			page, err := c.TransactionsPage(ctx, filter, number, before)
			if err != nil {
				yield(Page{}, err)
				return
			}
			if !yield(page, nil) || !page.More {
				return
			}
			before = page.Records
		}
	}
}

// TransactionsPage reads one page. Another page than the one asked for, or the same records as before (the page before's, if
// they are known), is a bad answer: such a list would be read for ever.
func (c *Client) TransactionsPage(ctx context.Context, filter Filter, number int, before []json.RawMessage) (page Page, err error) {
	call := clients.Request{
		Operation: list, Method: http.MethodGet, Path: "/v3/mandates/transactions", Query: filter.query(number), Redact: filter.Redact,
		Limit: filter.Limit,
	}
	err = c.v3.Exchange(ctx, call, func(status int, body []byte) clients.Reading {
		var ok bool
		if status/100 == 2 {
			page, ok = readPage(body, number)
		}
		repeated := len(before) > 0 && slices.EqualFunc(before, page.Records, func(a, b json.RawMessage) bool { return bytes.Equal(a, b) })
		if ok && !repeated && number <= lastPage {
			return clients.Reading{Complete: true}
		}
		return failure(body)
	})
	return page, err
}

// query asks for the first page without naming it: the parameter is not shown by the upstream; assumed.
func (f Filter) query(number int) string {
	values := url.Values{}
	for name, value := range map[string]string{
		"order_number":              f.OrderNumber,
		"status":                    f.Status,
		"exchange_reference_number": f.ExchangeReferenceNumber,
		"payer_email":               f.PayerEmail,
	} {
		if value != "" {
			values.Set(name, value)
		}
	}
	if number > 1 {
		values.Set("page", strconv.Itoa(number))
	}
	return values.Encode()
}

// readPage reads the answer to a call for page number.
func readPage(body []byte, number int) (page Page, ok bool) {
	var answer struct {
		Data  []json.RawMessage `json:"data"`
		Links struct {
			Next json.RawMessage `json:"next"`
		} `json:"links"`
		Meta struct {
			CurrentPage json.Number `json:"current_page"`
			LastPage    json.Number `json:"last_page"`
			PerPage     json.Number `json:"per_page"`
			Total       json.Number `json:"total"`
		} `json:"meta"`
	}
	if json.Unmarshal(body, &answer) != nil || answer.Data == nil {
		return Page{}, false
	}
	if current := count(answer.Meta.CurrentPage); current != 0 && current != number {
		return Page{}, false
	}
	page = Page{
		Number:   number,
		LastPage: count(answer.Meta.LastPage),
		PerPage:  count(answer.Meta.PerPage),
		Total:    count(answer.Meta.Total),
		Records:  answer.Data,
	}
	next := string(answer.Links.Next)
	page.Linked = next != "" && next != "null"
	switch {
	case len(page.Records) == 0 || next == "null":
	case page.LastPage > 0:
		page.More = number < page.LastPage
	default:
		page.More = page.Linked
	}
	return page, true
}

// maxCount is more records than any list has that can be read.
const maxCount = 1000 * lastPage

// count reads a number that may be quoted, null or missing, which are 0, as is one that cannot be true.
func count(n json.Number) int {
	if value, err := strconv.Atoi(string(n)); err == nil && value > 0 && value <= maxCount {
		return value
	}
	return 0
}
