package messages

import (
	"encoding/hex"
	"encoding/json"
	"slices"
	"testing"
)

// Two programs compare keys, today and after an upgrade: they must not change.
func TestAKeyIsTheBeginningOfTheSHA256OfItsAddress(t *testing.T) {
	const want = `"71d4f55f72fa128d"` // printf ann@example.com | sha256sum
	for _, address := range []string{"ann@example.com", "ann@EXAMPLE.com"} {
		if got, err := json.Marshal(KeyOf(address)); string(got) != want || err != nil {
			t.Errorf("%s: got %s, %v, want %s", address, got, err, want)
		}
	}
	if KeyOf("Ann@example.com") == KeyOf("ann@example.com") || KeyOf("") != 0 {
		t.Error("another local part has the same key, or no address has one")
	}
	const domain = `"a001c2e208ca6539"`
	for _, address := range []string{"x@bücher.example", "x@BÜCHER.example", "x@xn--bcher-kva.example", "x@xn--bcher-kva.example."} {
		if got, err := json.Marshal(KeyOf(address)); string(got) != domain || err != nil {
			t.Errorf("%s: got %s, %v, want %s", address, got, err, domain)
		}
	}
	list := AppendKey(AppendKey(nil, KeyOf("ann@example.com")), 1)
	if got := hex.EncodeToString(list); got != want[1:17]+"0000000000000001" {
		t.Errorf("list: %s", got)
	}
}

// FuzzKeys reads any bytes as a list of keys, and any text as a key.
func FuzzKeys(f *testing.F) {
	for _, data := range []string{"", "1", "12345678", "1234567890abcdef", "0000000000000000f", "-1", "+1", "0x1", "zz"} {
		f.Add([]byte(data))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		keys := Keys(data)
		var list []byte
		for _, k := range keys {
			list = AppendKey(list, k)
		}
		if whole := data[:len(data)-len(data)%8]; !slices.Equal(list, whole) || len(keys) != len(data)/8 {
			t.Fatalf("%x becomes %x", data, list)
		}
		var k, back Key
		if k.UnmarshalText(data) != nil {
			return
		}
		text, err := k.MarshalText()
		if err != nil || len(text) != 16 || back.UnmarshalText(text) != nil || back != k {
			t.Fatalf("%q becomes %q, then %v", data, text, back)
		}
	})
}
