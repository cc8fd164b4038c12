package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
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
func (rows) start(_ context.Context, s *stage, _ string, contestant *process) (reading, error) {
	return s.read(contestant)
}

func (r rows) finished(ctx context.Context, s *stage) (bool, error) {
	_, published, err := r.published(ctx, s)
	return published[delivered] >= uint64(r.items), err
}

// published returns the stream of rows, and how many there are by subject.
func (rows) published(ctx context.Context, s *stage) (jetstream.Stream, map[string]uint64, error) {
	stream, err := s.js.Stream(ctx, bus.MailDeliveries)
	if err != nil {
		return nil, nil, err
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(messages.Delivery.Subject(">", "")))
	if err != nil {
		return nil, nil, err
	}
	return stream, info.State.Subjects, nil
}

// verify makes sure that there is one event for each row, and no other. It returns the time from the first to the last.
func (r rows) verify(ctx context.Context, s *stage, _ int) (time.Duration, error) {
	stream, published, err := r.published(ctx, s)
	if err != nil {
		return 0, err
	}
	if published[delivered] != uint64(r.items) || len(published) != 1 {
		return 0, fmt.Errorf("%d rows were published, want %d, on %d subjects, want 1", published[delivered], r.items, len(published))
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
}

func (l *log) Run() error {
	l.newest = time.Now().UTC()
	web := httptest.NewServer(l)
	defer web.Close()
	fmt.Println(web.URL)
	return inputEnds()
}

func (l *log) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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
