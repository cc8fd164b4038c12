package messages

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
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
	if KeyOf("bob@example.com") == KeyOf("ann@example.com") || KeyOf("") != 0 {
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

func TestSpellingsOfAnAddressHaveOneKey(t *testing.T) {
	for _, spellings := range [][]string{
		{"ann.lee@example.com", "Ann.Lee@example.com", "ANN.LEE@EXAMPLE.COM", `"Ann.Lee"@example.com`, "Ann Lee <Ann.Lee@example.com>",
			"<ann.lee@example.com>", " ann.lee@example.com "},
		{"x@xn--bcher-kva.example", "x@bücher.example", "X@BÜCHER.example", "x@XN--BCHER-KVA.example", "X <x@Bücher.Example>",
			"x@bücher。example。"},
		{"ann@example.com", `"ann"@example.com`, `"Ann" <"ann"@example.com>`, `"a\nn"@example.com`, "ann@example.com.", "Ann@Example.COM.",
			`"Ann"@example.com.`, "Ann <ann@example.com.>", "<ann@example.com.> "},
		{`"ann lee"@example.com`, `"Ann Lee"@example.com`, `<"ANN LEE"@example.com.>`},
		{"änn@example.com", "ÄNN@example.com", "\"Änn\"@EXAMPLE.com."},
		{"shop@example.com", "Shop, Inc. <Shop@example.com>", "The Shop) <shop@example.com.>"}, // no mailboxes of RFC 5322, and in use
		{"a@[ipv6:fe80::1]", "A@[IPv6:FE80::1]"},
		{"no address"}, {"no address."},
	} {
		want := KeyOf(spellings[0])
		for _, s := range spellings[1:] {
			if KeyOf(s) != want {
				t.Errorf("%s and %s: two keys", s, spellings[0])
			}
		}
	}
	seen := map[Key]string{}
	for _, address := range []string{"ann.lee@example.com", "annlee@example.com", "ann@example.com", "ann+lee@example.com",
		`"ann lee"@example.com`, "ann.lee@example.org", "ann.lee@sub.example.com",
		"x@bücher.example", "x@bucher.example", "bücher@example.com", "xn--bcher-kva@example.com"} {
		key := KeyOf(address)
		if seen[key] != "" {
			t.Errorf("%s and %s: one key", address, seen[key])
		}
		seen[key] = address
	}
	if key := KeyOf(""); key != 0 {
		t.Errorf("no address: %v", key)
	}
	if string(AppendRecipient(nil, "Ann.Lee@example.com")) == string(AppendRecipient(nil, "ann.lee@example.com")) {
		t.Error("addresses that differ in the local part's case are taken for duplicates")
	}
}

// A record under a secret has no key that can be made without it, and one of every spelling.
func TestKeysOfASecretAreTheBeginningOfTheHMACOfTheAddress(t *testing.T) {
	secret, other := NewRecipientSecret("the secret of this test"), NewRecipientSecret("another secret")
	const want = `"20d3aa352259c1a3"` // printf ann@example.com | openssl dgst -sha256 -hmac 'the secret of this test'
	for _, spelling := range []string{"ann@example.com", "Ann <ANN@Example.COM.>", `"ann"@example.com`} {
		if got, err := json.Marshal(secret.KeyOf(spelling)); string(got) != want || err != nil {
			t.Errorf("%s: got %s, %v, want %s", spelling, got, err, want)
		}
	}
	if secret.KeyOf("") != 0 || other.KeyOf("ann@example.com") == secret.KeyOf("ann@example.com") || secret.ID() == other.ID() ||
		len(secret.ID()) != 8 {
		t.Errorf("%s and %s: no address has a key, or two secrets make the same", secret, other)
	}
	to := []string{"Ann@example.com", "x@bücher.example"}
	record := SentBody{From: KeyOf("shop@example.com")}
	record.SetKeys(secret, "shop@example.com", to)
	text, err := json.Marshal(record)
	var read SentBody
	if err != nil || DecodeEvent(text, &read) != nil {
		t.Fatalf("%s, %v", text, err)
	}
	from, keys := read.Parties()
	if read.Secret == nil || read.Secret.ID != secret.ID() || from != secret.KeyOf("shop@example.com") ||
		!slices.Equal(keys, []Key{secret.KeyOf(to[0]), secret.KeyOf(to[1])}) {
		t.Errorf("got %v and %v of %s", from, keys, text)
	}
	if read.From != 0 || read.Keys != nil || strings.Contains(string(text), "the secret") {
		t.Errorf("it has plain keys, or the secret: %s", text)
	}
	if shown := fmt.Sprintf("%v %+v %s %#v", secret, secret, *secret, *secret); strings.Contains(shown, "the secret") {
		t.Errorf("it is printed: %s", shown)
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
