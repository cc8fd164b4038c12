package mailkey

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"errand/internal/wire/mailbox"
)

var testSecret = NewSecret("the secret of this test")

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
		{"νίκος@example.com", "ΝΊΚΟΣ@example.com"},
		{"shop@example.com", "Shop, Inc. <Shop@example.com>", "The Shop) <shop@example.com.>"}, // no mailboxes of RFC 5322, and in use
		{"a@[ipv6:fe80::1]", "A@[IPv6:FE80::1]"},
		{"no address"}, {"no address."},
	} {
		want := testSecret.KeyOf(spellings[0])
		for _, s := range spellings[1:] {
			if testSecret.KeyOf(s) != want {
				t.Errorf("%s and %s: two keys", s, spellings[0])
			}
		}
	}
	seen := map[Key]string{}
	for _, address := range []string{"ann.lee@example.com", "annlee@example.com", "ann@example.com", "ann+lee@example.com",
		`"ann lee"@example.com`, "ann.lee@example.org", "ann.lee@sub.example.com",
		"x@bücher.example", "x@bucher.example", "bücher@example.com", "xn--bcher-kva@example.com"} {
		key := testSecret.KeyOf(address)
		if seen[key] != "" {
			t.Errorf("%s and %s: one key", address, seen[key])
		}
		seen[key] = address
	}
	if key := testSecret.KeyOf(""); key != 0 {
		t.Errorf("no address: %v", key)
	}
	if string(mailbox.Append(nil, "Ann.Lee@example.com")) == string(mailbox.Append(nil, "ann.lee@example.com")) {
		t.Error("addresses that differ in the local part's case are taken for duplicates")
	}
}

// Two programs compare keys, today and after an upgrade: they must not change.
func TestAKeyIsTheSipHashOfItsAddress(t *testing.T) {
	secret, other := testSecret, NewSecret(strings.Repeat("another secret", 10))
	for address, want := range map[string][2]string{ // by another implementation
		"ann@example.com":  {"ad1149482e616c72", "4bdf84a31bd373b7"},
		"x@bücher.example": {"5b93ce5f42d4349f", "7b00c8fe98b3bf7b"},
	} {
		for _, spelling := range []string{address, strings.ToUpper(address), address + "."} {
			for i, s := range []*Secret{secret, other} {
				if got, err := json.Marshal(s.KeyOf(spelling)); string(got) != `"`+want[i]+`"` || err != nil {
					t.Errorf("%s with %s: got %s, %v, want %s", spelling, s, got, err, want[i])
				}
			}
		}
	}
	if secret.KeyOf("") != 0 || secret.KeyOf("bob@example.com") == secret.KeyOf("ann@example.com") || secret.ID() == other.ID() ||
		len(secret.ID()) != 8 {
		t.Errorf("%s and %s: no address has a key, or two addresses or secrets make the same", secret, other)
	}
	to := []string{"Ann@example.com", "x@bücher.example", ""}
	list := secret.KeysOf("shop@example.com", to)
	if from, keys := Parties(list); from != secret.KeyOf("shop@example.com") ||
		!slices.Equal(keys, []Key{secret.KeyOf(to[0]), secret.KeyOf(to[1]), 0}) {
		t.Errorf("got %v and %v of %x", from, keys, list)
	}
	type within struct{ secret Secret } // fmt does not ask the methods of what is in an unexported field
	key := sha256.Sum256([]byte("the secret of this test"))
	shown := fmt.Sprintf("%v %+v %s %#v %d %d", secret, secret, *secret, *secret, within{*secret}, &within{*secret})
	for _, half := range [][]byte{key[:8], key[8:16]} {
		if number := strconv.FormatUint(binary.LittleEndian.Uint64(half), 10); strings.Contains(shown, number) {
			t.Errorf("it is printed: %s", shown)
		}
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
