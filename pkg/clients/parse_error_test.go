package clients

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWordsAreFoundInEveryKnownShape(t *testing.T) {
	for _, c := range []struct {
		body    string
		message string
		fields  map[string][]string
	}{
		{`{"error":{"amount":["too small","odd"],"payer_id":["missing"]}}`, "",
			map[string][]string{"amount": {"too small", "odd"}, "payer_id": {"missing"}}},
		{`{"message":"invalid","errors":{"amount":["too small"]}}`, "invalid", map[string][]string{"amount": {"too small"}}},
		{`{"error":"text"}`, "text", nil},
		{`{"message":"text"}`, "text", nil},
		{`{"code":429,"message":"too many"}`, "too many", nil},
		{`{"success":false,"message":"no"}`, "no", nil},
		{`{"error":true,"status_code":422,"message":"no","data":{}}`, "no", nil},
		{`{"message":null,"error":"text"}`, "text", nil},
		{`{"message":{"to":"missing"}}`, "", map[string][]string{"to": {"missing"}}},
		{`{"errors":["one","two"]}`, "one; two", nil},
		{`{"error":{"amount":{"min":5}}}`, "", map[string][]string{"amount": {`{"min":5}`}}},
		{`"text"`, "text", nil},
		{`plain text`, "plain text", nil},
		{`<html>gateway</html>`, "", nil},
		{`{"message":`, "", nil},
		{`[]`, "", nil},
		{``, "", nil},
	} {
		message, fields := ParseError([]byte(c.body))
		if message != c.message || !cmp.Equal(fields, c.fields) {
			t.Errorf("ParseError(%s) = %q %v, want %q %v", c.body, message, fields, c.message, c.fields)
		}
	}
}

func FuzzWords(f *testing.F) {
	f.Add([]byte(`{"error":{"amount":["too small"]},"errors":{"x":"y"},"message":"m"}`))
	f.Add([]byte(`{"errors":["one",2,null]}`))
	f.Add([]byte("plain \xff text"))
	f.Fuzz(func(t *testing.T, body []byte) {
		_, fields := ParseError(body)
		if len(fields) > maxFields {
			t.Errorf("%d fields", len(fields))
		}
		for field, messages := range fields {
			if len(messages) == 0 || len(messages) > maxMessages {
				t.Errorf("field %q has %d messages", field, len(messages))
			}
		}
	})
}
