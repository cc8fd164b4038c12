package messages

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func seeds(f *testing.F, more ...string) {
	for _, s := range append(more, `{}`, `[]`, `null`, ``, ` { } `, `{"request_id":"a-1"}`, `{"request_id":"a.b","request_id":1}`,
		`{"a":{"b":[1,{"c":"\u00e9\ud83d\ude00\ud800"}]}}`,
		enrollSample, enrollRequired, sendRequired, sendObject, `{"headers":{"X-A":"1","x-a":"2","Bcc":"x","":[]},"to":"a@b, \"c,d\" <e@f>"}`,
		`{"amount":"0100","payer_id":-1,"max_frequency":1e3,"return_url":"http://%zz"}`, `{"subject":"a\\","content":"\\\"b\\\\","to":"\\"}`,
		`{"to":["a",1,null,["b"]],"as_html":2,"to_object":{"bucket":1}}`) {
		f.Add([]byte(s))
	}
}

// FuzzRequests holds what is true of every decoder and every body.
func FuzzRequests(f *testing.F) {
	seeds(f, `{"status":3,"max_pages":0}`)
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		for name, decode := range decoders {
			got, meta, err := decode(data)
			again, metaAgain, errAgain := decode(data)
			if diff := cmp.Diff(got, again); diff != "" || meta != metaAgain || (err == nil) != (errAgain == nil) || err != nil &&
				err.Error() != errAgain.Error() {
				t.Fatalf("%s: twice the same gave %v, %v, %s", name, err, errAgain, diff)
			}
			var members map[string]json.RawMessage
			readable := utf8.Valid(data) && json.Unmarshal(data, &members) == nil && members != nil
			if readable != (len(meta.Fingerprint) == 64) || meta.RequestID != "" && !ValidID(meta.RequestID) {
				t.Fatalf("%s: readable %v, got %+v", name, readable, meta)
			}
			var invalid *Invalid
			if err != nil && !errors.As(err, &invalid) {
				t.Fatalf("%s: %T", name, err)
			}
			if invalid != nil && (len(invalid.Fields) == 0 || len(invalid.Fields) > 200 || (invalid.Fields["body"] == nil) == (!readable)) {
				t.Fatalf("%s: %v", name, invalid)
			}
			if err == nil {
				producesWhatItReads(t, name, data, got, meta.Fingerprint)
			}
			if r, ok := got.(SendRequest); ok {
				for text := range r.Addresses() {
					_, _ = ParseRecipient(text)
				}
			}
		}
		if !bytes.Equal(before, data) {
			t.Fatal("the bytes were written to")
		}
	})
}

func FuzzFingerprint(f *testing.F) {
	seeds(f, `{"a":[100.50,1.005e2,-0.0,1e99,0.10E-98,1e100,0e400,1E+002,900e-0000003,1.005e2400]}`)
	f.Fuzz(func(t *testing.T, data []byte) {
		_, meta, _ := Decode[SendRequest](data)
		if meta.Fingerprint == "" || nesting(data) > maxDepth-2 {
			return
		}
		var spaced bytes.Buffer
		if err := json.Indent(&spaced, data, " ", "\t"); err != nil {
			t.Fatal(err)
		}
		if _, other, _ := Decode[SendRequest](spaced.Bytes()); other.Fingerprint != meta.Fingerprint {
			t.Fatalf("differs when spaced: %q", data)
		}
		// The decoders know different fields and so take different ways.
		for name, decode := range decoders {
			if _, other, _ := decode(data); other.Fingerprint != meta.Fingerprint {
				t.Fatalf("%s differs: %q", name, data)
			}
		}
		if givesTwice(t, exactly(data)) {
			return
		}
		// Re-ordered: encoding/json sorts, and so does a second pass in reverse.
		if other := reversed(t, data); !bytes.Contains(data, []byte("202")) {
			if _, got, _ := Decode[SendRequest](other); got.Fingerprint != meta.Fingerprint {
				t.Fatalf("differs when re-ordered: %q and %q", data, other)
			}
			if want := slowFingerprint(t, data); want != meta.Fingerprint {
				t.Fatalf("%q: got %s, want %s", data, meta.Fingerprint, want)
			}
		}
	})
}

func FuzzAddresses(f *testing.F) {
	seeds(f, `"a@b, \"c,d\" <e@f>, (x,(y)) g@h"`, `"\"a <b@c>, \"d, e\" <f@g>, (h, i@j"`, `["a",""," b , c "]`, `"\\\",\\"`,
		`["\u002c\ud83d\ude00,"]`)
	f.Fuzz(func(t *testing.T, data []byte) {
		data = bytes.TrimSpace(data)
		if !json.Valid(data) || !utf8.Valid(data) {
			return
		}
		var elements []string
		if json.Unmarshal(data, &elements) != nil {
			var one string
			if json.Unmarshal(data, &one) != nil {
				return
			}
			elements = []string{one}
		} else if bytes.Contains(data, []byte("null")) {
			return
		}
		r := SendRequest{To: data}
		got := slices.Collect(r.Addresses())
		if !slices.Equal(got, slices.Collect(r.Addresses())) {
			t.Fatalf("%s: not the same twice", data)
		}
		for _, text := range got {
			if _, err := ParseRecipient(text); err != nil && strings.Contains(text, ",") {
				t.Fatalf("%s: %q is not an address and may be several", data, text)
			}
		}
		// Nothing is lost and nothing made up but commas and the spaces around.
		bare := func(s string) string {
			return strings.NewReplacer(",", "", " ", "", "\t", "", "\r", "", "\n", "").Replace(s)
		}
		if bare(strings.Join(got, "")) != bare(strings.Join(elements, "")) {
			t.Fatalf("%s: got %q", data, got)
		}
	})
}

// exactly decodes data with its numbers as they are written: one such as 1e2400 fits no float64.
func exactly(data []byte) *json.Decoder {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	return dec
}

func nesting(data []byte) (deep int) {
	dec, now := exactly(data), 0
	for {
		token, err := dec.Token()
		if err != nil {
			return deep
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			now++
			deep = max(deep, now)
		case json.Delim('}'), json.Delim(']'):
			now--
		}
	}
}

// givesTwice says whether the value dec is at has an object with a key twice.
func givesTwice(t *testing.T, dec *json.Decoder) (twice bool) {
	token, err := dec.Token()
	if err != nil {
		if errors.Is(err, io.EOF) {
			return false
		}
		t.Fatal(err)
	}
	open, ok := token.(json.Delim)
	if !ok {
		return false
	}
	seen := map[string]bool{}
	for dec.More() {
		if open == '{' {
			key, err := dec.Token()
			if err != nil {
				t.Fatal(err)
			}
			twice = twice || seen[key.(string)]
			seen[key.(string)] = true
		}
		twice = givesTwice(t, dec) || twice
	}
	_, _ = dec.Token()
	return twice
}

// reversed is the same value with the keys of every object in falling order.
func reversed(t *testing.T, data []byte) []byte {
	t.Helper()
	data = bytes.TrimSpace(data)
	var members map[string]json.RawMessage
	var elements []json.RawMessage
	var out []byte
	switch {
	case data[0] == '{':
		if err := json.Unmarshal(data, &members); err != nil {
			t.Fatal(err)
		}
		keys := make([]string, 0, len(members))
		for key := range members {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		slices.Reverse(keys)
		for _, key := range keys {
			name, _ := json.Marshal(key)
			out = append(append(append(append(out, ','), name...), ':'), reversed(t, members[key])...)
		}
	case data[0] == '[':
		if err := json.Unmarshal(data, &elements); err != nil {
			t.Fatal(err)
		}
		for _, element := range elements {
			out = append(append(out, ','), reversed(t, element)...)
		}
	default:
		return data
	}
	if len(out) > 0 {
		out = out[1:]
	}
	return append(append([]byte{data[0]}, out...), data[0]+2)
}
