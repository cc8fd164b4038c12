package messages

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

func TestAddressesAreTheTextsOfTheList(t *testing.T) {
	for to, want := range map[string][]string{
		`["a@b","c@d"]`:              {"a@b", "c@d"},
		`[ "a@b" , "c@d" ]`:          {"a@b", "c@d"},
		`"a@b"`:                      {"a@b"},
		`"a@b,c@d"`:                  {"a@b", "c@d"},
		`" a@b ,\r\n\tc@d\n"`:        {"a@b", "c@d"},
		`",a@b,,c@d, ,"`:             {"a@b", "c@d"},
		`["a@b, c@d","e@f"]`:         {"a@b", "c@d", "e@f"},
		`["a@b",""," ","c@d"]`:       {"a@b", "", "", "c@d"},
		`["a@b,",","]`:               {"a@b"},
		`"\"Doe, J\" <a@b>, c@d"`:    {`"Doe, J" <a@b>`, "c@d"},
		`["\"Doe, J\" <a@b>"]`:       {`"Doe, J" <a@b>`},
		`"\"a\\\",b\" <a@b>,c@d"`:    {`"a\",b" <a@b>`, "c@d"},
		`"a@b (x, (y, z), w), c@d"`:  {"a@b (x, (y, z), w)", "c@d"},
		`"a@b (x\\), y), c@d"`:       {`a@b (x\), y)`, "c@d"},
		`"\"(\" <a@b>, c@d"`:         {`"(" <a@b>`, "c@d"},
		`"(\") a@b, c@d"`:            {`(") a@b`, "c@d"},
		`"a@b), c@d"`:                {"a@b)", "c@d"},
		`"\"never closed, a@b, c@d"`: {`"never closed, a@b, c@d`},
		`["\u0061@b","é@ü","\\,"]`:   {"a@b", "é@ü", `\`},
		`""`:                         nil, `[]`: nil, ``: nil, `null`: nil,
	} {
		r := SendRequest{To: []byte(to)}
		got := slices.Collect(r.Addresses())
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", to, diff)
		}
		for n := range got {
			i := 0
			for text := range r.Addresses() {
				if i++; text != got[i-1] || i > n {
					break
				}
			}
		}
	}
}

// A hundred invalid addresses are kept for the report: they must not keep the list.
func TestAnAddressDoesNotKeepTheListAlive(t *testing.T) {
	raw := []byte(manyRecipients(10_000))
	list, n := texts{from: raw}, 0
	for c := enter(raw, 0); ; {
		at, ok := c.element()
		if !ok {
			break
		}
		list.element(at, true, func(string) bool { n++; return true })
		if len(list.chunk) > chunkSize {
			t.Fatalf("address %d is part of a text of %d octets", n, len(list.chunk))
		}
	}
	if n != 10_000 {
		t.Errorf("got %d addresses, want 10000", n)
	}
}

func TestRecipientsAreParsedToTheirBareAddress(t *testing.T) {
	longest := strings.Repeat("a", 64) + "@" + strings.Repeat("b", 254-65-8) + ".example"
	for text, want := range map[string]string{
		"a@b.example": "a@b.example", "A.B+c_d@Sub-1.Example": "A.B+c_d@Sub-1.Example", "!#$%&'*+-/=?^_`{|}~@b": "!#$%&'*+-/=?^_`{|}~@b",
		" a@b.example ": "a@b.example", "<a@b.example>": "a@b.example", "Name <a@b.example>": "a@b.example",
		`"Doe, J" <a@b.example>`: "a@b.example", "a@b.example (comment)": "a@b.example", "Café <a@b.example>": "a@b.example",
		"=?utf-8?q?Caf=C3=A9?= <a@b.example>": "a@b.example", `"a b"@c.example`: `"a b"@c.example`, `"ab"@c.example`: "ab@c.example", `"a@b"@c.example`: `"a@b"@c.example`,
		"pelé@example.test": "pelé@example.test", "a@bücher.example": "a@bücher.example", longest: longest,
	} {
		got, err := ParseRecipient(text)
		if err != nil || got != want {
			t.Errorf("%q: got %q, %v, want %q", text, got, err, want)
		}
	}
}

func TestWhyARecipientIsRefusedIsOneOfAFew(t *testing.T) {
	for text, want := range map[string]string{
		"": "is empty", "   ": "is empty",
		"a\xff@b.example":                 "is not UTF-8",
		"a@b.example\r\nBcc: c@d.example": "holds a control character", "a@b.example\x00": "holds a control character", "\ta@b.example": "holds a control character",
		"a\u0085@b.example": "holds a control character", "\"a\x7f\"@b.example": "holds a control character",
		strings.Repeat("a", 65) + "@b.example": "is too long", "a@" + strings.Repeat("b", 253): "is too long", strings.Repeat("é", 33) + "@b.example": "is too long",
		strings.Repeat("a ", 1500): "is too long",
		"a":                        "is not an email address", "a@": "is not an email address", "@b": "is not an email address", "a@b@c": "is not an email address", "a b@c": "is not an email address",
		"a..b@c": "is not an email address", ".a@b": "is not an email address", "a.@b": "is not an email address", "a@b..c": "is not an email address", "a@.b": "is not an email address",
		"a@b.": "is not an email address", "a@b, c@d": "is not an email address", "Name a@b": "is not an email address", "<a@b": "is not an email address", "<>": "is not an email address",
	} {
		got, err := ParseRecipient(text)
		if err == nil || err.Error() != want || got != "" {
			t.Errorf("%q: got %q, %v, want %q", text, got, err, want)
		}
	}
}

func TestRecipientsAreOneWhenOnlyTheDomainsCaseDiffers(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"a@b.example", "a@B.EXAMPLE", true}, {"a@bücher.example", "a@BÜCHER.Example", true}, {`"x@Y"@b`, `"x@Y"@B`, true},
		{"a@b.example", "A@b.example", false}, {"a@b.example", "a@c.example", false}, {`"x@Y"@b`, `"x@y"@b`, false}, {"a@b", "a@bb", false},
		{strings.Repeat("a", 400) + "@B", strings.Repeat("a", 400) + "@b", true},
	} {
		if got := RecipientKey(c.a) == RecipientKey(c.b); got != c.same {
			t.Errorf("%s and %s: got %v, want %v", c.a, c.b, got, c.same)
		}
	}
	// Kept in stores, it must not change between versions.
	want := [16]byte{0xfb, 0x98, 0xd4, 0x4a, 0xd7, 0x50, 0x1a, 0x95, 0x9f, 0x3f, 0x4f, 0x4a, 0x3f, 0x00, 0x4f, 0xe2}
	if got := RecipientKey("a@B.com"); got != want {
		t.Errorf("a@b.com: got %x, want %x", got, want)
	}
}

func TestLinesAreGivenOneByOne(t *testing.T) {
	long := strings.Repeat("a", 3*maxLine)
	for text, want := range map[string][]string{
		"": nil, "\n\n": nil, "a@b": {"a@b"}, "a@b\n": {"a@b"}, "a@b\r\n\r\n  c@d\t\r\n": {"a@b", "c@d"}, "\ufeffa@b\nc@d": {"a@b", "c@d"}, "\ufeff": nil,
		"\"Doe, J\" <a@b>\n": {`"Doe, J" <a@b>`}, "a@b\n" + long + "@b\nc@d": {"a@b", long[:maxLine], "c@d"},
		strings.Repeat(" ", 2*maxLine) + "a@b\nc@d\n": {strings.Repeat(" ", maxLine), "c@d"},
	} {
		for _, r := range []io.Reader{strings.NewReader(text), iotest.OneByteReader(strings.NewReader(text)), iotest.DataErrReader(strings.NewReader(text))} {
			var got []string
			for line, err := range Lines(r) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, line)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%.40q (-want +got):\n%s", text, diff)
			}
		}
	}
}

func TestAListThatBreaksOffSaysSoLast(t *testing.T) {
	broken := errors.New("broken")
	var got []string
	var last error
	for line, err := range Lines(io.MultiReader(strings.NewReader("a@b\nc@d.exam"), iotest.ErrReader(broken))) {
		got, last = append(got, line), err
	}
	if !slices.Equal(got, []string{"a@b", ""}) || !errors.Is(last, broken) {
		t.Errorf("got %q, %v", got, last)
	}
	for line := range Lines(strings.NewReader("a@b\nc@d\n")) {
		if line != "a@b" {
			t.Errorf("went on to %s", line)
		}
		break
	}
}
