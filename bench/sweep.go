package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/pkg/messages"
)

// rows are the work of a poller: the first reading of a sending log.
type rows struct {
	items int
	page  int // rows on a page
}

// delivered is the subject on which rows without a request are published.
var delivered = messages.Delivery.Subject(messages.Delivered, messages.Unmatched)

func (rows) prepare(ctx context.Context, s *stage, _ string) error {
	return recreate(ctx, s.js, s.limits)
}

// start reads what was used so far: a poller waits for nobody.
func (rows) start(_ context.Context, s *stage, _ string, contestants ...*process) (reading, error) {
	return s.read(contestants...)
}

func (r rows) finished(ctx context.Context, s *stage) (bool, error) {
	info, err := r.info(ctx, s)
	return err == nil && info.State.Subjects[delivered] >= uint64(r.items), err
}

func (rows) info(ctx context.Context, s *stage) (*jetstream.StreamInfo, error) {
	stream, err := s.js.Stream(ctx, bus.MailDeliveries)
	if err != nil {
		return nil, err
	}
	return stream.Info(ctx, jetstream.WithSubjectFilter(messages.Delivery.Subject(">", "")))
}

// verify makes sure that there is one event for each row, and no other. It returns the time from the first to the last.
func (r rows) verify(ctx context.Context, s *stage, _ int) (time.Duration, error) {
	info, err := r.info(ctx, s)
	if err != nil {
		return 0, err
	}
	if info.State.Subjects[delivered] != uint64(r.items) || len(info.State.Subjects) != 1 {
		return 0, fmt.Errorf("%d rows were published, want %d, on %d subjects, want 1", info.State.Subjects[delivered], r.items,
			len(info.State.Subjects))
	}
	stream, err := s.js.Stream(ctx, bus.MailDeliveries)
	if err != nil {
		return 0, err
	}
	first, err := stream.GetMsg(ctx, 0, jetstream.WithGetMsgSubject(delivered))
	if err != nil {
		return 0, err
	}
	last, err := stream.GetLastMsgForSubject(ctx, delivered)
	if err != nil {
		return 0, err
	}
	return last.Time.Sub(first.Time), nil
}

// log is the role of the email service when it is asked for its sending log.
type log struct {
	Rows int `help:"Rows of the log."`

	newest time.Time
	calls  atomic.Int64
}

func (l *log) Run() error {
	l.newest = time.Now().UTC()
	web := httptest.NewServer(l)
	defer web.Close()
	fmt.Println(web.URL)
	return answer(func(string) (any, error) {
		cpu, err := ownCPU()
		return called{Calls: l.calls.Load(), CPU: cpu}, err
	})
}

func (l *log) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.calls.Add(1)
	page, badPage := strconv.Atoi(r.FormValue("page"))
	limit, badLimit := strconv.Atoi(r.FormValue("limit"))
	if err := errors.Join(badPage, badLimit); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_, _ = w.Write(logPage(l.Rows, page, limit, l.newest)) // fails only when the caller is gone
}

// logPage is a page of a sending log with this many rows, newest first and a second apart, in the format of the email
// document. It is made quickly, so that it costs a measurement little.
func logPage(rows, page, limit int, newest time.Time) []byte {
	b := append(make([]byte, 0, 350*limit+200), `{"error":false,"status_code":200,"message":"OK","data":{"data":[`...)
	for i := (page - 1) * limit; i < min(page*limit, rows); i++ {
		if i > (page-1)*limit {
			b = append(b, ',')
		}
		at := newest.Add(-time.Duration(i) * time.Second)
		b = at.AppendFormat(append(b, `{"created_at":"`...), time.RFC3339)
		b = fmt.Appendf(b, `","envelope_id":"%018x","interface":"api","domain":"example.test","from":"sender@example.test",`+
			`"to":"payer%d@example.test","delivered":1,"status":{"delivered":true,"ip":"192.0.2.25","mx":"mx1.example.test",`+
			`"response":"250 2.0.0 OK %x"}}`, at.UnixMilli(), i, i)
	}
	return fmt.Appendf(b, `],"total_record":%d,"total_page":%d,"current_page":%d,"limit":%d}}`, rows, (rows+limit-1)/limit, page, limit)
}
