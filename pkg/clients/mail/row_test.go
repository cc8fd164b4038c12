package mail

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// plainRow is a row as encoding/json alone reads it.
type plainRow struct {
	CreatedAt  string      `json:"created_at"`
	EnvelopeID string      `json:"envelope_id"`
	From       string      `json:"from"`
	To         string      `json:"to"`
	Delivered  flag        `json:"delivered"`
	Status     plainStatus `json:"status"`
}

type plainStatus struct {
	delivered flag
	response  string
}

func (s *plainStatus) UnmarshalJSON(raw []byte) error {
	if raw[0] == '"' {
		var text string
		_ = json.Unmarshal(raw, &text)
		raw = []byte(text)
	}
	var object struct {
		Delivered flag   `json:"delivered"`
		Response  string `json:"response"`
	}
	_ = json.Unmarshal(raw, &object)
	s.delivered, s.response = object.Delivered, object.Response
	return nil
}

func readPlainly(raw json.RawMessage) Entry {
	var r plainRow
	_ = json.Unmarshal(raw, &r)
	delivered := r.Delivered.yes
	if also := r.Status.delivered; also.given {
		delivered = also.yes && (delivered || !r.Delivered.given)
	}
	return Entry{Raw: raw, CreatedAt: instant(r.CreatedAt), EnvelopeID: r.EnvelopeID, From: r.From, To: r.To, Delivered: delivered,
		Response: r.Status.response}
}

// sampleRows are of every form that reading makes a difference between.
var sampleRows = []string{
	`{"created_at":"2026-01-01T04:00:05.000000Z","envelope_id":"19b77cfb4c0abcdef0","interface":"api","domain":"example.test","from":"s@example.test",` +
		`"to":"p@example.test","delivered":1,"status":{"delivered":true,"ip":"192.0.2.10","mx":"mx.example.test","response":"250 2.0.0 OK"}}`,
	"{ \"created_at\" : \"2026-01-01 04:00:05\" ,\r\n\t\"to\" : \"p@b\u00fccher.example\" , \"delivered\" : \"1\" , \"status\" : null , " +
		"\"tags\" : [ 1 , { \"to\" : [ ] } , \"]\" ] }",
	`{"created_at":"2026-01-01T04:00:05Z","delivered":"1","status":"{\"delivered\":true,\"response\":\"250 \\u00fc \\\"OK\\\"\"}"}`,
	`{"delivered":0,"status":{"delivered":false,"response":"550 5.1.1 \"no\\\\user\" \/ \ud83d\ude00 \ud83d"},"to":"a\"@b","from":"\\"}`,
	`{"To":"upper","to":"lower","TO":"again","DELIVERED":true,"Status":{"Response":"folded","DELIVERED":1}}`,
	`{"t\u006f":"escaped","\u017ftatus":{"re\u017fponse":"long s"},"ſtatus":{"reſponse":"long s","response":"s"}}`,
	`{"to":"first","to":null,"to":7,"status":{"response":"first"},"status":{"delivered":0},"delivered":1,"delivered":null,"status":" {\"response\":\"text\"} "}`,
	`{"to":{"to":"inner"},"from":["a"],"envelope_id":-1.5e3,"created_at":true,"delivered":{"a":[1]},"status":[{"response":"x"}]}`,
	`{"status":"","delivered":""}`, `{"status":"\"","to":""}`, `{"status":{},"x":{}}`, `{"status":"null"}`, `{}`, `[]`, `null`, `7`,
	`"text"`, `{"":"","to":"x"}`,
}

func TestARowIsReadAsEncodingJSONReadsIt(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	pieces := []string{`"`, `\`, `\"`, `{`, `}`, `[`, `]`, `,`, `:`, ` `, `0`, `null`, `true`, `"to"`, `"to":"x",`,
		`"STATUS":{"delivered":0},`, `T`, `\u006f`, "\xff", "\u212a", `{}`, `[]`}
	for _, sample := range sampleRows {
		compared := 0
		for n := range 2_000 {
			row := []byte(sample)
			for range min(n, 1+n%3) { // the first one is not changed
				at, piece := random.IntN(len(row)+1), pieces[random.IntN(len(pieces))]
				end := min(len(row), at+random.IntN(4))
				row = append(append(append([]byte{}, row[:at]...), piece...), row[end:]...)
			}
			if !json.Valid(row) {
				continue
			}
			compared++
			if want, got := readPlainly(row), ReadEntry(row); !reflect.DeepEqual(want, got) {
				t.Fatalf("%q (-want +got):\n%s", row, cmp.Diff(want, got))
			}
		}
		if compared < 10 {
			t.Errorf("%s: only %d rows were compared", sample, compared)
		}
	}
}

// FuzzPage holds a page whose rows are cut out against the whole page as encoding/json reads it.
func FuzzPage(f *testing.F) {
	for _, row := range sampleRows {
		f.Add([]byte(` {"error":false,"status_code":200,"message":"]","data":{"limit":2,"data":[` + row + `, ` + row +
			`],"total_record":"7"}}` + "\n"))
	}
	for _, data := range []string{`{"data":[]}`, `{"data":[ ] }`, `{"data":null}`, `{"data":{"data":[1]}}`, `{"data":[1],"data":[2]}`,
		`{"Data":[1],"data":[2]}`, `{"d\u0061ta":[1],"data":[2]}`, `{"x":{"data":[1]}}`, `[]`, `null`, `"data"`,
		`{"data":[1]},"data":{"data":[2]}`, `{"data":[1]},"Data":{"data":[2]}`} {
		f.Add([]byte(`{"error":false,"status_code":200,"data":` + data + `}`))
	}
	f.Fuzz(func(t *testing.T, page []byte) {
		read := func(body []byte, rows []json.RawMessage) (all []json.RawMessage, found LogPage, complete bool) {
			reading := open(200, body, func(data *logData) bool {
				if data == nil || data.Data == nil {
					return false
				}
				if rows != nil {
					data.Data = rows
				}
				all, found = data.Data, readLog(data)
				return true
			})
			return all, found, reading.Complete
		}
		whole := append([]byte{}, page...)
		want, wantPage, complete := read(whole, nil)
		rest, rows := cutRows(page)
		got, gotPage, also := read(rest, rows)
		if complete != also || !reflect.DeepEqual(want, got) || !reflect.DeepEqual(wantPage, gotPage) {
			t.Errorf("%q: %t %q, want %t %q", page, also, got, complete, want)
		}
		if !bytes.Equal(page, whole) {
			t.Errorf("%q became %q", whole, page)
		}
	})
}
