package messages

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"
)

func fingerprintOf(t *testing.T, body string) string {
	t.Helper()
	_, meta, _ := DecodeSend([]byte(body))
	if len(meta.Fingerprint) != 64 {
		t.Fatalf("%s: fingerprint %q", body, meta.Fingerprint)
	}
	return meta.Fingerprint
}

func TestAFingerprintIsTheSHA256OfTheCanonicalBody(t *testing.T) {
	for body, canonical := range map[string]string{
		`{}`:                     `{}`,
		`{"request_id":"a"}`:     `{}`,
		` { "to" : "a" } `:       `{"to":"a"}`,
		`{"to":"b","subject":1}`: `{"subject":1,"to":"b"}`,
		`{"headers":{"b":1.50,"a":[ 1e3 , -0 ]},"request_id":"x"}`: `{"headers":{"a":[1e3,-0],"b":1.50}}`,
		`{"headers":{"request_id":"kept"}}`:                        `{"headers":{"request_id":"kept"}}`,
		`{"content":"\u0061\/\u003c<&>\u00e9é\ud83d\ude00"}`:       `{"content":"a/<<&>éé😀"}`,
		`{"content":"\"\\\b\f\n\r\t\u0000\u001f\u007f\u2028"}`:     `{"content":"\"\\\b\f\n\r\t\u0000\u001f` + "\u007f\u2028" + `"}`,
		`{"content":"\ud800 \udc00\ud800"}`:                        `{"content":"` + "\ufffd \ufffd\ufffd" + `"}`,
		`{"to":null,"from":"","headers":{},"to_object":[]}`:        `{"from":"","headers":{},"to":null,"to_object":[]}`,
		`{"z":1,"é":2,"a":{"y":[{"d":1,"c":2}],"x":true}}`:         `{"a":{"x":true,"y":[{"c":2,"d":1}]},"z":1,"é":2}`,
		`{"b":1,"a":1,"b":0}`:                                      `{"a":1,"b":1,"b":0}`,
	} {
		sum := sha256.Sum256([]byte(canonical))
		if got, want := fingerprintOf(t, body), hex.EncodeToString(sum[:]); got != want {
			t.Errorf("%s: got %s, want that of %s", body, got, canonical)
		}
	}
}

func TestAFingerprintDependsOnValuesAlone(t *testing.T) {
	base := `{"request_id":"a","to":["x@example.test"],"subject":"S","headers":{"X-A":"1","X-B":"2"},"as_html":1}`
	for _, same := range []string{
		`{"as_html":1,"headers":{"X-B":"2","X-A":"1"},"subject":"S","to":["x@example.test"]}`,
		"{\n\t\"to\": [ \"x@example.test\" ],\n\t\"subject\": \"\\u0053\", \"headers\":{\"X-A\":\"1\",\"X-B\":\"2\"},\r\"as_html\":1,\"request_id\":\"b\"}",
		`{"\u0061s_html":1,"headers":{"X-B":"2","X-\u0041":"1"},"subject":"S","to":["x\u0040example.test"]}`,
	} {
		if fingerprintOf(t, base) != fingerprintOf(t, same) {
			t.Errorf("differs for %s", same)
		}
	}
	for _, other := range []string{
		strings.Replace(base, `"S"`, `"s"`, 1), strings.Replace(base, `:1}`, `:1.0}`, 1), strings.Replace(base, `:1}`, `:true}`, 1),
		strings.Replace(base, `"X-B":"2"`, `"X-B":"2","X-C":""`, 1), strings.Replace(base, `["x@example.test"]`, `"x@example.test"`, 1),
	} {
		if fingerprintOf(t, base) == fingerprintOf(t, other) {
			t.Errorf("is the same for %s", other)
		}
	}
}

// Longer than what is gathered before it is hashed, in every way it can be.
func TestAFingerprintOfALongBodyIsThatOfItsText(t *testing.T) {
	for _, canonical := range []string{
		`{"content":"` + strings.Repeat("é", 10*pressed) + `"}`,
		`{"to":[` + strings.TrimSuffix(strings.Repeat(`[],`, 5*pressed), ",") + `]}`,
		`{"to":[` + strings.TrimSuffix(strings.Repeat(`"some@example.test",`, pressed), ",") + `]}`,
		`{"content":"` + strings.Repeat(`\n\u0001\"`, 3*pressed) + `"}`,
	} {
		sum := sha256.Sum256([]byte(canonical))
		if got, want := fingerprintOf(t, canonical), hex.EncodeToString(sum[:]); got != want {
			t.Errorf("%.40s: got %s, want %s", canonical, got, want)
		}
	}
}

// slowFingerprint is the same thing the plain way, for bodies without a key
// given twice.
func slowFingerprint(t *testing.T, body []byte) string {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	var members map[string]any
	if err := dec.Decode(&members); err != nil {
		t.Fatal(err)
	}
	delete(members, "request_id")
	text, err := marshal(members)
	if err != nil {
		t.Fatal(err)
	}
	// encoding/json escapes these two whatever it is told.
	text = bytes.ReplaceAll(text, []byte(`\u2028`), []byte("\u2028"))
	text = bytes.ReplaceAll(text, []byte(`\u2029`), []byte("\u2029"))
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
