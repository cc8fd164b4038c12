package messages

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"errand/internal/sandbox/devkit/inshort"
	"errand/internal/wire"
	"errand/internal/wire/mailbox"
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
		`"\"never closed, a@b, c@d"`: {`"never closed`, "a@b", "c@d"},
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

// A comma is hidden by a quoted string or a comment only where that makes an address:
// whoever forgets to close one loses that recipient alone.
func TestARecipientThatCannotBeParsedTakesNoOtherWithIt(t *testing.T) {
	for list, want := range map[string][]string{
		`"Ann <ann@b>, bob@b, cy@b`:                {`"Ann <ann@b>`, "bob@b", "cy@b"},
		`ann@b, (Bob bob@b, cy@b`:                  {"ann@b", "(Bob bob@b", "cy@b"},
		`ann@b, "Bob <bob@b>`:                      {"ann@b", `"Bob <bob@b>`},
		`"Ann <ann@b>, "Bob" <bob@b>, cy@b`:        {`"Ann <ann@b>`, `"Bob" <bob@b>`, "cy@b"},
		`"Ann <ann@b>, "Doe, Bob" <bob@b>, cy@b`:   {`"Ann <ann@b>`, `"Doe, Bob" <bob@b>`, "cy@b"},
		`O"Ann <ann@b>, "Bob" <bob@b>`:             {`O"Ann <ann@b>`, `"Bob" <bob@b>`},
		`(Ann (A. ann@b, bob@b (Bob, B.), cy@b`:    {"(Ann (A. ann@b", "bob@b (Bob, B.)", "cy@b"},
		`(Ann ann@b, bob@b (Bob), cy@b`:            {"(Ann ann@b", "bob@b (Bob)", "cy@b"},
		`ann@b (x\), bob@b, cy@b`:                  {`ann@b (x\)`, "bob@b", "cy@b"},
		`"Ann\" <ann@b>, bob@b`:                    {`"Ann\" <ann@b>`, "bob@b"},
		`"no, address", bob@b`:                     {`"no`, `address"`, "bob@b"},
		`"Doe, Ann" <ann@b>, bob@b (Doe, Bob),c@b`: {`"Doe, Ann" <ann@b>`, "bob@b (Doe, Bob)", "c@b"},
		`"`: {`"`}, `",`: {`"`}, `,"`: {`"`}, `(,(,",\`: {"(", "(", `"`, `\`},
		`"` + strings.Repeat("x, ", mailbox.Longest) + `" <ann@b>, bob@b`: append(append([]string{`"x`},
			slices.Repeat([]string{"x"}, mailbox.Longest-1)...), `" <ann@b>`, "bob@b"),
	} {
		for _, to := range []any{list, []string{list}} {
			raw, err := wire.Marshal(to)
			if err != nil {
				t.Fatal(err)
			}
			r := SendRequest{To: raw}
			if diff := cmp.Diff(want, slices.Collect(r.Addresses())); diff != "" {
				t.Errorf("%.200s (-want +got):\n%.1000s", raw, diff)
			}
		}
	}
}

// From each comma it is looked ahead as far as an address may be long, not to the end:
// that would take many minutes.
func TestAListOfOpenQuotesAndCommentsIsSplitInLinearTime(t *testing.T) {
	n := inshort.Choose(t, 100_000, 20_000)
	for _, part := range []string{`"a@b,`, `(a@b,`, `"\",`, `(\),`, `"(,`, `a@b (,`, strings.Repeat("(,", 400) + strings.Repeat(")", 401)} {
		r := SendRequest{To: []byte(`["` + strings.Repeat(strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(part), n*4/len(part)) + `"]`)}
		for range r.Addresses() {
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

func TestInvisibleCharactersOfAnAddressAreNamed(t *testing.T) {
	const want = "holds an invisible character"
	for body, field := range map[string]string{
		string(with(t, enrollRequired, "payer_email", `"a\u200b@b.example"`)): "payer_email",
		string(with(t, enrollRequired, "payer_email", `"a\u00a0@b.example"`)): "payer_email",
	} {
		_, _, err := Decode[EnrollRequest]([]byte(body))
		if diff := cmp.Diff(map[string][]string{field: {want}}, faultsOf(t, err)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", body, diff)
		}
	}
	for _, field := range []string{"from", "reply_to"} {
		_, _, err := Decode[SendRequest](with(t, sendRequired, field, `"Shop <a\u2060@b.example>"`))
		if diff := cmp.Diff(map[string][]string{field: {want}}, faultsOf(t, err)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", field, diff)
		}
	}
}

func TestLinesAreGivenOneByOne(t *testing.T) {
	long := strings.Repeat("a", 3*maxLine)
	for text, want := range map[string][]string{
		"": nil, "\n\n": nil, "a@b": {"a@b"}, "a@b\n": {"a@b"}, "a@b\r\n\r\n  c@d\t\r\n": {"a@b", "c@d"}, "\ufeffa@b\nc@d": {"a@b", "c@d"},
		"\ufeff":             nil,
		"\"Doe, J\" <a@b>\n": {`"Doe, J" <a@b>`}, "a@b\n" + long + "@b\nc@d": {"a@b", long[:maxLine], "c@d"},
		strings.Repeat(" ", 2*maxLine) + "a@b\nc@d\n": {strings.Repeat(" ", maxLine), "c@d"},
	} {
		for _, r := range []io.Reader{strings.NewReader(text), iotest.OneByteReader(strings.NewReader(text)),
			iotest.DataErrReader(strings.NewReader(text))} {
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
