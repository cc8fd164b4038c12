package sandbox

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// merchant is a return_url that keeps what it receives.
type merchant struct {
	mu      sync.Mutex
	records []map[string]string
	at      []time.Time
	status  func(call int) int
}

func (m *merchant) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	m.ServeHTTP(w, r)
	return w.Result(), nil
}

func (m *merchant) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	var record map[string]string
	if err := json.Unmarshal(body, &record); err != nil || r.Method != "POST" || r.Header.Get("Content-Type") != "application/json" {
		record = map[string]string{"unreadable": string(body)}
	}
	m.records, m.at = append(m.records, record), append(m.at, time.Now())
	if m.status != nil {
		w.WriteHeader(m.status(len(m.records)))
	}
}

func (m *merchant) recordTypes() []string {
	var types []string
	for _, record := range m.records {
		types = append(types, record["record_type"])
	}
	return types
}

func TestADecisionIsCalledBack(t *testing.T) {
	for decision, want := range map[string][]string{"approve": {"authorization", "bank_approval"}, "decline": {"authorization"},
		"cancel": {"authorization"}, "expire": nil} {
		m := &merchant{}
		server := httptest.NewServer(m)
		defer server.Close()
		s := New(strictOptions())
		must(t, s, "POST", "/v3/mandates", enrollment1().with("return_url", server.URL+"/cb").with("payer_bank_code", "TEST01").String())
		if err := s.Decide("DD1", decision); err != nil {
			t.Fatal(err)
		}
		s.Close()
		equal(t, decision, m.recordTypes(), want)
		if want == nil {
			continue
		}
		record := m.records[0]
		equal(t, decision, []string{record["order_number"], record["application_type"], record["amount"], record["status_description"],
			record["payer_email"]},
			[]string{"DD1", "01", "100", map[string]string{"approve": "Approved", "decline": "Failed", "cancel": "Cancelled"}[decision],
				"payer@example.test"})
	}
}

func TestCallbacksAreSignedOverTheFieldsOfTheirRecord(t *testing.T) {
	m := &merchant{}
	o := strictOptions()
	o.Callbacks = m
	s := New(o)
	must(t, s, "POST", "/v3/mandates", enrollment1().with("return_url", "http://127.0.0.1/cb").String())
	if err := s.Decide("DD1", Approve); err != nil {
		t.Fatal(err)
	}
	s.Close()
	signedFields := map[string]string{
		"authorization": "amount application_type currency datetime exchange_reference_number exchange_transaction_id mandate_id " +
			"order_number payer_bank_name payer_email payer_name record_type status status_description transaction_id",
		"bank_approval": "application_type approval_date approval_status mandate_id mandate_reference_number " +
			"order_number payer_bank_account_no payer_bank_code payer_bank_code_hashed record_type",
	}
	for _, record := range m.records {
		names := strings.Fields(signedFields[record["record_type"]])
		var values []string
		for _, name := range names {
			values = append(values, record[name])
		}
		equal(t, record["record_type"], record["checksum"], checksum(secret, values...))
		equal(t, "fields", len(record), len(names)+1)
	}
	equal(t, "records", len(m.records), 2)
}

func TestCallbacksAreTriedFiveTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &merchant{status: func(call int) int {
			if call == 7 {
				return 200
			}
			return 503
		}}
		o := strictOptions()
		o.Callbacks = m
		s := New(o)
		must(t, s, "POST", "/v3/mandates", enrollment1().with("return_url", "http://[::1]:9/cb").String())
		if err := s.Decide("DD1", Approve); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		s.Close()
		equal(t, "records", m.recordTypes(), []string{"authorization", "authorization", "authorization", "authorization", "authorization",
			"bank_approval", "bank_approval"})
		equal(t, "wait between two tries", m.at[1].Sub(m.at[0]), 5*time.Second)
		equal(t, "counted", s.Oracle(Query{}).Callbacks, Callbacks{Delivered: 1, Failed: 1, Tries: 7})
	})
}

func TestClosingGivesEveryRecordOneTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &merchant{status: func(int) int { return 500 }}
		o := strictOptions()
		o.Callbacks = m
		s := New(o)
		must(t, s, "POST", "/v3/mandates", enrollment1().with("return_url", "http://localhost/cb").String())
		if err := s.Decide("DD1", Approve); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		s.Close()
		equal(t, "tried", m.recordTypes(), []string{"authorization", "bank_approval"})
		equal(t, "time it took", time.Since(begin), "0s")
		s.Close() // a second Close does nothing
	})
}

func TestCallbacksStayOnThisMachineUnlessAllowed(t *testing.T) {
	m := &merchant{}
	o := strictOptions()
	o.Callbacks = m
	run := func(target string) Callbacks {
		s := New(o)
		must(t, s, "POST", "/v3/mandates", enrollment1().with("return_url", target).String())
		if err := s.Decide("DD1", Decline); err != nil {
			t.Fatal(err)
		}
		s.Close()
		return s.Oracle(Query{}).Callbacks
	}
	for _, target := range []string{"https://shop.example.test/cb", "http://192.0.2.1/cb", "http://localhost.example.test/cb",
		"http://127.0.0.1@example.test/cb"} {
		equal(t, target, run(target), Callbacks{Withheld: 1})
	}
	for _, target := range []string{"http://localhost:1/cb", "http://127.9.9.9/cb", "http://[::1]/cb"} {
		equal(t, target, run(target), Callbacks{Delivered: 1, Tries: 1})
	}
	o.AllowCallbacks = true
	equal(t, "allowed", run("https://shop.example.test/cb"), Callbacks{Delivered: 1, Tries: 1})
	equal(t, "sent in total", len(m.records), 4)
}

func TestRedirectsOfCallbacksAreNotFollowed(t *testing.T) {
	var calls int
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls++
		http.Redirect(w, r, "http://192.0.2.1/elsewhere", http.StatusTemporaryRedirect)
	}))
	defer server.Close()
	s := New(strictOptions())
	err := s.post(server.URL, []byte("{}"))
	equal(t, "outcome", []any{err, calls}, []any{fmt.Errorf("answered 307"), 1})
}

func TestDecidingOverTheControlInterface(t *testing.T) {
	s := newSandbox(t, strictOptions())
	must(t, s, "POST", "/v3/mandates", enrollment1().String())
	for body, want := range map[string]int{`{"order_number":"DD9","decision":"approve"}`: 400,
		`{"order_number":"DD1","decision":"perhaps"}`: 400, `{"order":"DD1"}`: 400, `x`: 400} {
		status, _ := ask(t, s, "POST", "/_sandbox/decide", body)
		equal(t, body, status, want)
	}
	must(t, s, "POST", "/_sandbox/decide", `{"order_number":"DD1","decision":"decline"}`)
	status, _ := ask(t, s, "POST", "/_sandbox/decide", `{"order_number":"DD1","decision":"approve"}`)
	equal(t, "a second time", status, http.StatusConflict)
	equal(t, "status", dig(t, list(t, s, ""), "data", 0, "status"), 2)
}
