package mailbox

import "testing"

// FuzzSpelling holds the fast way, for the characters that nearly all addresses have, to the one for every mailbox.
func FuzzSpelling(f *testing.F) {
	for _, text := range []string{"", "Ann.Lee@Example.com", "ann@example.com.", "A..b@C_d..", "a@b@c.", "no-address.", "@", ".",
		"Ann <a@example.com.>"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if got, want := string(Spelling([]byte("x"), text)), "x"+string(Append(nil, fold(bare(text)))); got != want {
			t.Fatalf("the spelling of %q is %q, want %q", text, got, want)
		}
	})
}
