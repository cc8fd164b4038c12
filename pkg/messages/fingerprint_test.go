package messages

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math/big"
	"strings"
	"testing"

	"errand/internal/wire"
)

func fingerprintOf(t *testing.T, body string) string {
	t.Helper()
	_, meta, _ := Decode[SendRequest]([]byte(body))
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
		`{"headers":{"b":1.50,"a":[ 1e3 , -0 ]},"request_id":"x"}`: `{"headers":{"a":[1000,0],"b":1.5}}`,
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
			t.Errorf("%s: got %s, want the fingerprint of %s", body, got, canonical)
		}
	}
}

func TestAFingerprintDependsOnValuesAlone(t *testing.T) {
	base := `{"request_id":"a","to":["x@example.test"],"subject":"S","headers":{"X-A":"1","X-B":"2"},"as_html":1}`
	for _, same := range []string{
		`{"as_html":1,"headers":{"X-B":"2","X-A":"1"},"subject":"S","to":["x@example.test"]}`,
		"{\n\t\"to\": [ \"x@example.test\" ],\n\t\"subject\": \"\\u0053\", " +
			"\"headers\":{\"X-A\":\"1\",\"X-B\":\"2\"},\r\"as_html\":1,\"request_id\":\"b\"}",
		`{"\u0061s_html":1,"headers":{"X-B":"2","X-\u0041":"1"},"subject":"S","to":["x\u0040example.test"]}`,
		strings.Replace(base, `:1}`, `:1.00}`, 1), strings.Replace(base, `:1}`, `:10e-1}`, 1),
	} {
		if fingerprintOf(t, base) != fingerprintOf(t, same) {
			t.Errorf("differs for %s", same)
		}
	}
	for _, other := range []string{
		strings.Replace(base, `"S"`, `"s"`, 1), strings.Replace(base, `:1}`, `:1.01}`, 1), strings.Replace(base, `:1}`, `:"1"}`, 1),
		strings.Replace(base, `:1}`, `:true}`, 1),
		strings.Replace(base, `"X-B":"2"`, `"X-B":"2","X-C":""`, 1), strings.Replace(base, `["x@example.test"]`, `"x@example.test"`, 1),
	} {
		if fingerprintOf(t, base) == fingerprintOf(t, other) {
			t.Errorf("is the same for %s", other)
		}
	}
}

func TestAFingerprintHasEachNumberInOneForm(t *testing.T) {
	zeros := strings.Repeat("0", 99)
	for canonical, written := range map[string][]string{
		"5":      {"5.0", "5.00", "5e0", "5E+0", "5e-0", "0.5e1", "50e-1", "500.00E-2", "0.05e+0002", "5e00000000000000000000"},
		"100.5":  {"100.50", "1.005e2", "1005e-1", "100500e-3", "0.1005E3"},
		"-100.5": {"-100.50", "-1.005e2"},
		"0":      {"-0", "0.0", "-0.00", "0e5", "0E-99", "0.000e+7", "0e999999999999999999999", "-0e-400"},
		"0.05":   {"0.050", "5e-2", "0.5e-1", "50.0e-3"},
		"1200":   {"1.2e3", "12e2", "1200.0", "120000e-2"},

		"123456789012345678901234567890.12": {"123456789012345678901234567890.120", "12345678901234567890123456789012e-2"},

		"1" + zeros:                 {"1e99", "10e98", "100e0097", "1" + zeros + ".0"},
		"0." + zeros[1:] + "1":      {"1e-99", "0.1e-98"},
		"1e100":                     {"1e100"}, // as written: there is no end to what these would become
		"10e100":                    {"10e100"},
		"1.50E+100":                 {"1.50E+100"},
		"-1e-999999999999999999999": {"-1e-999999999999999999999"},
	} {
		sum := sha256.Sum256([]byte(`{"headers":[` + canonical + `]}`))
		for _, number := range append(written, canonical) {
			if got, want := fingerprintOf(t, `{"headers":[`+number+`]}`), hex.EncodeToString(sum[:]); got != want {
				t.Errorf("%s: got %s, want the fingerprint of %s", number, got, canonical)
			}
		}
	}
}

// The fingerprint is described for those who make it in another language.
func TestTheFingerprintOfTheDocumentIsThatOfItsBody(t *testing.T) {
	_, block, _ := strings.Cut(sectionOf(t, "ids-and-corrections.md", "The fingerprint").text, "```text\n")
	lines := strings.Split(block, "\n")
	if len(lines) < 3 {
		t.Fatalf("the block has %d lines, want body, form and fingerprint", len(lines))
	}
	body, form, want := lines[0], lines[1], lines[2]
	if sum := sha256.Sum256([]byte(form)); hex.EncodeToString(sum[:]) != want || fingerprintOf(t, body) != want {
		t.Errorf("of the body %s, of its form %x, want %s", fingerprintOf(t, body), sum, want)
	}
	if _, _, err := Decode[SendRequest]([]byte(body)); err != nil {
		t.Error(err)
	}
}

// Longer than what is gathered before it is hashed, in every way it can be.
func TestAFingerprintOfALongBodyIsThatOfItsText(t *testing.T) {
	for _, canonical := range []string{
		`{"content":"` + strings.Repeat("é", 10*flushAt) + `"}`,
		`{"to":[` + strings.TrimSuffix(strings.Repeat(`[],`, 5*flushAt), ",") + `]}`,
		`{"to":[` + strings.TrimSuffix(strings.Repeat(`"some@example.test",`, flushAt), ",") + `]}`,
		`{"content":"` + strings.Repeat(`\n\u0001\"`, 3*flushAt) + `"}`,
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
	text, err := wire.Marshal(slowNumbers(t, members))
	if err != nil {
		t.Fatal(err)
	}
	// encoding/json always escapes these two.
	text = bytes.ReplaceAll(text, []byte(`\u2028`), []byte("\u2028"))
	text = bytes.ReplaceAll(text, []byte(`\u2029`), []byte("\u2029"))
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// slowNumbers are the same members with each number as a fraction's plain decimal.
func slowNumbers(t *testing.T, v any) any {
	t.Helper()
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			v[name] = slowNumbers(t, member)
		}
	case []any:
		for i, element := range v {
			v[i] = slowNumbers(t, element)
		}
	case json.Number:
		mantissa, exponent, _ := strings.Cut(strings.ToLower(v.String()), "e")
		if !strings.ContainsAny(mantissa, "123456789") {
			return json.Number("0")
		}
		if len(strings.TrimLeft(exponent, "+-0")) > 2 {
			return v
		}
		number, ok := new(big.Rat).SetString(v.String())
		if !ok {
			t.Fatalf("%s is not a number", v)
		}
		plain := number.FloatString(len(mantissa) + 99)
		return json.Number(strings.TrimSuffix(strings.TrimRight(plain, "0"), "."))
	}
	return v
}
