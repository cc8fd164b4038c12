package mailbox

import (
	"net/mail"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"errand/internal/wire"
)

func TestRecipientsAreParsedToTheirBareAddress(t *testing.T) {
	longest := strings.Repeat("a", 64) + "@" + strings.Repeat("b", 254-65-8) + ".example"
	for text, want := range map[string]string{
		"a@b.example": "a@b.example", "A.B+c_d@Sub-1.Example": "A.B+c_d@Sub-1.Example", "!#$%&'*+-/=?^_`{|}~@b": "!#$%&'*+-/=?^_`{|}~@b",
		" a@b.example ": "a@b.example", "<a@b.example>": "a@b.example", "Name <a@b.example>": "a@b.example",
		`"Doe, J" <a@b.example>`: "a@b.example", "a@b.example (comment)": "a@b.example", "Café <a@b.example>": "a@b.example",
		"=?utf-8?q?Caf=C3=A9?= <a@b.example>": "a@b.example", `"a b"@c.example`: `"a b"@c.example`, `"ab"@c.example`: "ab@c.example",
		`"a@b"@c.example`:   `"a@b"@c.example`,
		"pelé@example.test": "pelé@example.test", "a@bücher.example": "a@bücher.example", longest: longest,
	} {
		got, err := Parse(text)
		if err != nil || got != want {
			t.Errorf("%q: got %q, %v, want %q", text, got, err, want)
		}
	}
}

func TestWhyARecipientIsRefusedIsOneOfAFew(t *testing.T) {
	for text, want := range map[string]string{
		"": "is empty", "   ": "is empty",
		"a\xff@b.example":                 "is not UTF-8",
		"a@b.example\r\nBcc: c@d.example": "holds a control character", "a@b.example\x00": "holds a control character",
		"\ta@b.example":     "holds a control character",
		"a\u0085@b.example": "holds a control character", "\"a\x7f\"@b.example": "holds a control character",
		strings.Repeat("a", 65) + "@b.example": "is too long", "a@" + strings.Repeat("b", 253): "is too long", strings.Repeat("é", 33) +
			"@b.example": "is too long",
		strings.Repeat("a ", 1500): "is too long",
		"a":                        "is not an email address", "a@": "is not an email address", "@b": "is not an email address",
		"a@b@c": "is not an email address", "a b@c": "is not an email address",
		"a..b@c": "is not an email address", ".a@b": "is not an email address", "a.@b": "is not an email address",
		"a@b..c": "is not an email address", "a@.b": "is not an email address",
		"a@b.": "is not an email address", "a@b, c@d": "is not an email address", "Name a@b": "is not an email address",
		"<a@b": "is not an email address", "<>": "is not an email address",
	} {
		got, err := Parse(text)
		if err == nil || err.Error() != want || got != "" {
			t.Errorf("%q: got %q, %v, want %q", text, got, err, want)
		}
	}
}

// Nobody sees them: such an address is another one than it looks like.
func TestInvisibleCharactersAreRefused(t *testing.T) {
	const want = "holds an invisible character"
	invisible := "\u00ad\u034f\u061c\u115f\u1160\u17b4\u180b\u180e" +
		"\u200b\u200c\u200d\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\u2061\u2062\u2063\u2064\u2065" +
		"\u2066\u2067\u2068\u2069\u206a\u206f\u3164\ufe00\ufe0f\ufeff\uffa0\ufff9\ufffb\U0001d173\U000e0001\U000e0020\U000e007f\U000e0100" +
		"\u00a0\u1680\u2000\u200a\u202f\u205f\u3000"
	for _, c := range invisible {
		for _, text := range []string{"a%@b.example", "%a@b.example", "a@b%.example", "a@b.example%", "Ann <a%@b.example>", `"a %"@b.example`} {
			text = strings.ReplaceAll(text, "%", string(c))
			if got, err := Parse(text); err == nil || err.Error() != want || got != "" {
				t.Errorf("%U in %+q: got %q, %v, want %q", c, text, got, err, want)
			}
		}
	}
	for _, text := range []string{"\u200bAnn <a@b.example>", "\u202eAnn <a@b.example>", "a@b.example (x\ufeff)",
		"\"A\u00adnn\" <a@b.example>"} {
		if _, err := Parse(text); err == nil || err.Error() != want {
			t.Errorf("%+q: got %v, want %q", text, err, want)
		}
	}
	// A display name may have what is seen with its neighbours.
	for _, text := range []string{"\u2708\ufe0f Ann <a@b.example>", "山田\u3000太郎 <a@b.example>", "Ann\u00a0Doe <a@b.example>"} {
		if got, err := Parse(text); err != nil || got != "a@b.example" {
			t.Errorf("%+q: got %q, %v", text, got, err)
		}
	}
}

func TestRecipientsAreOneWhenTheirDomainIs(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"a@b.example", "a@B.EXAMPLE", true}, {"a@bücher.example", "a@BÜCHER.Example", true}, {`"x@Y"@b`, `"x@Y"@B`, true},
		{"x@bücher.example", "x@xn--bcher-kva.example", true}, {"x@BÜCHER.example", "x@XN--Bcher-KVA.Example", true},
		{"x@mail.bücher.example.", "x@Mail.xn--bcher-kva.example", true},
		{"a@b.example", "a@b.example.", true}, {"a@B.Example.", "a@b.example", true}, {"a@b.example", "a@b.example..", false},
		{"a@.", "a@", true},
		{"x@例え.テスト", "x@xn--r8jz45g.xn--zckzah", true}, {"x@例え。テスト", "x@例え.テスト", true}, {"x@b\uff0eexample\uff61", "x@b.example", true},
		{"x@\u212a.example", "x@k.example", true}, {"x@ß.example", "x@ss.example", false}, {"bücher@b", "xn--bcher-kva@b", false},
		{"x@bu\u0308cher.example", "x@bücher.example", false}, // no normalisation: the standard library has none
		{"x@" + strings.Repeat("ü", 64), "x@" + strings.Repeat("Ü", 64), true}, {"a@[IPv6:FE80::1]", "a@[ipv6:fe80::1]", true},
		{"a@b.example", "A@b.example", false}, {"a@b.example", "a@c.example", false}, {`"x@Y"@b`, `"x@y"@b`, false}, {"a@b", "a@bb", false},
		{strings.Repeat("a", 400) + "@B", strings.Repeat("a", 400) + "@b", true},
	} {
		if got := string(Append([]byte("X@Y."), c.a)) == string(Append([]byte("X@Y."), c.b)); got != c.same {
			t.Errorf("%s and %s, behind another text: got %v, want %v", c.a, c.b, got, c.same)
		}
	}
}

// The samples of RFC 3492 section 7.1, lower-cased as domains are, and a few that are in use.
func TestALabelOutsideASCIIIsWrittenAsPunycode(t *testing.T) {
	for label, want := range map[string]string{
		"bücher": "bcher-kva", "ü": "tda", "münchen": "mnchen-3ya", "faß": "fa-hia", "россия": "h1alffa9f", "中国": "fiqs8s", "😀": "e28h",
		"a-ü":                    "a--yka",
		"ليهمابتكلموشعربي؟":      "egbpdaj6bu4bxfgehfvwxn",
		"他们为什么不说中文":              "ihqwcrb4cv8a8dqg056pqjye",
		"他們爲什麽不說中文":              "ihqwctvzc91f659drss3x8bo0yb",
		"pročprostěnemluvíčesky": "proprostnemluvesky-uyb24dma41a",
		"למההםפשוטלאמדבריםעברית": "4dbcagdahymbxekheh6e0a7fei0b",
		"यहलोगहिन्दीक्योंनहींबोलसकतेहैं":           "i1baa7eci9glrd9b2ae1bj0hfcgg6iyaf8o0a1dig0cd",
		"なぜみんな日本語を話してくれないのか":                       "n8jok5ay5dzabd5bym9f0cm5685rrjetr6pdxa",
		"세계의모든사람들이한국어를이해한다면얼마나좋을까":                 "989aomsvi5e83db1d2a355cv1e0vak1dwrv93d5xbh15a0dt30a5jpsd879ccm6fea98c",
		"почемужеонинеговорятпорусски":             "b1abfaaepdrnnbgefbadotcwatmq2g4l",
		"porquénopuedensimplementehablarenespañol": "porqunopuedensimplementehablarenespaol-fmd56a",
		"tạisaohọkhôngthểchỉnóitiếngviệt":          "tisaohkhngthchnitingvit-kjcr8268qyxafd2f1b9g",
		"3年b組金八先生":  "3b-ww4c5e180e575a65lsy2b",
		"ひとつ屋根の下2":  "2-u9tlzr9756bt3uc0v",
		"パフィーdeルンバ": "de-jg4avhby1noc0d",
		"そのスピードで":   "d9juau41awczczp",
	} {
		if got := string(appendPunycode(nil, []rune(label))); got != want {
			t.Errorf("%s: got %s, want %s", label, got, want)
		}
	}
}

func asciiUpper(s string) string {
	return strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' {
			return r - 'a' + 'A'
		}
		return r
	}, s)
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"a@b.example", "Name <a@b.example>", `"a b"@c`, "a@[127.0.0.1]", "é@ü", "=?utf-8?q?a?= <a@b>", "g: a@b;",
		"a@b (c)", "a\u200b@b", "\ufe0f <a@b>", "<>", "\n", "a..b@c", "\"\\\"\"@c", "a@b-.c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := Parse(text)
		if err != nil {
			if got != "" || !slices.Contains([]error{errEmpty, errUTF8, errControl, ErrInvisible, errLength,
				errForm}, err) {
				t.Fatalf("%q: got %q, %v", text, got, err)
			}
			return
		}
		if again, err := Parse(got); err != nil || again != got {
			t.Fatalf("%q: %q becomes %q, %v", text, got, again, err)
		}
		if len(got) > maxAddress || strings.ContainsFunc(got, wire.IsControl) || strings.ContainsFunc(got, isInvisible) ||
			!utf8.ValidString(got) {
			t.Fatalf("%q: got %q", text, got)
		}
		if isPlainAddress(text) {
			if parsed, err := mail.ParseAddress(text); err != nil || parsed.Address != text {
				t.Fatalf("%q: net/mail gives %v, %v", text, parsed, err)
			}
		}
		at := strings.LastIndexByte(got, '@')
		if lower := got[:at] + strings.ToLower(got[at:]); string(Append(nil, got)) != string(Append(nil, lower)) {
			t.Fatalf("%q: the domain's case counts", got)
		}
		for _, spelling := range []string{got, asciiUpper(got), got + ".", "<" + got + ">"} {
			if string(Spelling(nil, spelling)) != string(Spelling(nil, text)) {
				t.Fatalf("%q and %q have two spellings", text, spelling)
			}
		}
	})
}
