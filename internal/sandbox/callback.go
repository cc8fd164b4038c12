package sandbox

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"errand/internal/loopback"
)

// callbackTries is the maximum number of tries for one record. Payload, timing and signature of callbacks are assumed.
const callbackTries = 5

// Callbacks counts the records for return_url by what became of them.
type Callbacks struct {
	Delivered int `json:"delivered"` // answered with 200
	Failed    int `json:"failed"`    // given up
	Withheld  int `json:"withheld"`  // not sent because the host is not loopback
	Lost      int `json:"lost"`      // decisions that callback_lost took them of
	Tries     int `json:"tries"`
}

type callbacks struct {
	client *http.Client
	mu     sync.Mutex
	done   Callbacks
}

func (c *callbacks) counts() Callbacks {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.done
}

func (c *callbacks) count(change func(*Callbacks)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.done)
}

func callbackClient(transport http.RoundTripper) *http.Client {
	return &http.Client{
		Transport:     cmp.Or(transport, http.RoundTripper(&http.Transport{DisableKeepAlives: true})),
		Timeout:       10 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// callBack posts the decision on an enrollment to its return_url in the background: the authorization and, if it was
// approved, the bank's approval.
func (s *Sandbox) callBack(n int, e enrollment) {
	v := e.values()
	target := v["return_url"]
	if target == "" {
		return
	}
	if u, err := url.Parse(target); !s.o.AllowCallbacks && (err != nil || !loopback.Is(u.Hostname())) {
		s.callback.count(func(c *Callbacks) { c.Withheld++ })
		s.logf("callback withheld: the host of return_url is not loopback")
		return
	}
	set := s.Settings()
	if s.draw(n, saltLost) < set.CallbackLost {
		s.callback.count(func(c *Callbacks) { c.Lost++ })
		return
	}
	now := time.Now().In(s.zone)
	var records []map[string]string
	if s.draw(n, saltForged) < set.CallbackForged {
		records = append(records, s.forged(n, e, v, now))
	}
	records = append(records, s.authorization(n, &e, v, now))
	if e.tx == txApproved {
		records = append(records, s.bankApproval(n, &e, v, now))
	}
	s.launch(func() {
		for _, record := range records {
			for range set.CallbackCopies {
				s.deliver(target, record)
			}
		}
	})
}

// Salts of what is drawn for an enrollment.
const (
	saltLost   = 0x6c6f
	saltForged = 0x666f
)

// draw is a number from 0 to 1 for an enrollment, the same each time.
func (s *Sandbox) draw(n int, salt uint64) float64 {
	return fraction(mix(uint64(n+1) ^ mix(s.o.Seed^salt)))
}

// forged says the opposite of what was decided.
func (s *Sandbox) forged(n int, e enrollment, v values, now time.Time) map[string]string {
	e.tx = map[bool]uint8{true: txFailed, false: txApproved}[e.tx == txApproved]
	record := s.authorization(n, &e, v, now)
	if record["checksum"] != "" {
		record["checksum"] = strings.Repeat("0", len(record["checksum"]))
	}
	return record
}

// deliver sends one record until it is answered with 200. After Close the first try is still made, and no other.
func (s *Sandbox) deliver(target string, record map[string]string) {
	body, _ := json.Marshal(record) // strings always marshal
	for try := 1; ; try++ {
		s.callback.count(func(c *Callbacks) { c.Tries++ })
		err := s.post(target, body)
		if err == nil {
			s.callback.count(func(c *Callbacks) { c.Delivered++ })
			s.logf("callback %s delivered", record["record_type"])
			return
		}
		s.logf("callback %s, try %d: %v", record["record_type"], try, err)
		if try < callbackTries {
			s.wait(time.Duration(s.Settings().CallbackWait), nil)
		}
		if try == callbackTries || s.running.Err() != nil {
			s.callback.count(func(c *Callbacks) { c.Failed++ })
			return
		}
	}
}

func (s *Sandbox) post(target string, body []byte) error {
	request, err := http.NewRequestWithContext(context.Background(), http.MethodPost, target, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := s.callback.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, _ = io.CopyN(io.Discard, response.Body, 1<<16) // only the status counts
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("answered %d", response.StatusCode)
	}
	return nil
}

// Callbacks carry codes as strings; "01" is an enrollment.
const callbackEnrollment = "01"

func (s *Sandbox) authorization(n int, e *enrollment, v values, now time.Time) map[string]string {
	return s.signed(map[string]string{
		"record_type":               "authorization",
		"amount":                    decimal(e.cents),
		"application_type":          callbackEnrollment,
		"currency":                  "MYR",
		"datetime":                  now.Format(time.DateTime),
		"exchange_reference_number": number("EXR", n),
		"exchange_transaction_id":   number("EXT", n),
		"mandate_id":                number("MDT", n),
		"order_number":              e.order,
		"payer_bank_name":           bankName,
		"payer_email":               v["payer_email"],
		"payer_name":                v["payer_name"],
		"status":                    strconv.Itoa(int(e.tx)),
		"status_description":        txLabels[e.tx],
		"transaction_id":            number("TXN", n),
	})
}

func (s *Sandbox) bankApproval(n int, e *enrollment, v values, now time.Time) map[string]string {
	return s.signed(map[string]string{
		"record_type":              "bank_approval",
		"application_type":         callbackEnrollment,
		"approval_date":            now.Format(time.DateOnly),
		"approval_status":          strconv.Itoa(int(e.mandate)),
		"mandate_id":               number("MDT", n),
		"mandate_reference_number": number("MRN", n),
		"order_number":             e.order,
		"payer_bank_account_no":    fmt.Sprintf("%012d", n+1),
		"payer_bank_code":          v["payer_bank_code"],
		"payer_bank_code_hashed":   v["payer_bank_code_hashed"],
	})
}

// signed adds the checksum over all fields of the record, sorted by name, when there is a secret.
func (s *Sandbox) signed(record map[string]string) map[string]string {
	if s.o.ChecksumSecret == "" {
		return record
	}
	var values []string
	for _, name := range slices.Sorted(maps.Keys(record)) {
		values = append(values, record[name])
	}
	record["checksum"] = checksum(s.o.ChecksumSecret, values...)
	return record
}
