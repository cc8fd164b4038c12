package devkit

import (
	"fmt"
	"time"
)

// LogPage returns a page of a sending log with this many rows, newest first and a
// second apart, in the format of the email document. It is fast, for measurements.
func LogPage(rows, page, limit int, newest time.Time) []byte {
	b := append(make([]byte, 0, 350*limit+200), `{"error":false,"status_code":200,"message":"OK","data":{"data":[`...)
	for i := (page - 1) * limit; i < min(page*limit, rows); i++ {
		if i > (page-1)*limit {
			b = append(b, ',')
		}
		at := newest.Add(-time.Duration(i) * time.Second)
		b = at.AppendFormat(append(b, `{"created_at":"`...), time.RFC3339)
		b = fmt.Appendf(b, `","envelope_id":"%018x","interface":"api","domain":"example.test","from":"sender@example.test","to":"payer%d@example.test","delivered":1,"status":{"delivered":true,"ip":"192.0.2.25","mx":"mx1.example.test","response":"250 2.0.0 OK %x"}}`, at.UnixMilli(), i, i)
	}
	return fmt.Appendf(b, `],"total_record":%d,"total_page":%d,"current_page":%d,"limit":%d}}`, rows, (rows+limit-1)/limit, page, limit)
}
