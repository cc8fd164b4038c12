package programs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRecipientKeysAreOneOrTwoLongSecrets(t *testing.T) {
	a, b, c := strings.Repeat("a", 32), strings.Repeat("b", 40), strings.Repeat("c", 32)
	for _, given := range []struct {
		text string
		want int // -1: refused
	}{
		{"", 0}, {a, 1}, {" " + a + "\n", 1}, {a + "," + b, 2}, {a + "\n" + b + "\n", 2},
		{"short", -1}, {a + ",short", -1}, {a + "," + a, -1}, {a + "," + b + "," + c, -1},
	} {
		file := filepath.Join(t.TempDir(), "key")
		if err := os.WriteFile(file, []byte(given.text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, k := range []RecipientKey{{RecipientKey: given.text}, {RecipientKeyFile: file}} {
			if given.text == "" && k.RecipientKeyFile != "" {
				continue // an empty file is a mistake
			}
			all, err := k.Secrets()
			if (err != nil) != (given.want < 0) || err == nil && len(all) != given.want {
				t.Errorf("%q: %d secrets, %v, want %d", given.text, len(all), err, given.want)
			}
			if err != nil && (!strings.Contains(err.Error(), "RECIPIENT_KEY") || strings.Contains(err.Error(), a) ||
				strings.Contains(err.Error(), "short,")) {
				t.Errorf("%q: the error is %v", given.text, err)
			}
		}
	}
	if _, err := (&RecipientKey{RecipientKey: a, RecipientKeyFile: "file"}).Secrets(); err == nil {
		t.Error("both are taken")
	}
}

// How long a secret is the service decides; what no header can carry is refused by the name of its setting.
func TestASecretThatCannotBeSentIsRefusedByName(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("fi\tve\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		value, file string
		ok          bool
	}{{"", "", true}, {"five5", "", true}, {"k", "", true}, {"fi\tve", "", false}, {"", file, false}} {
		_, err := secret("MAIL_API_KEY", c.value, c.file)
		if (err == nil) != c.ok || err != nil && (!strings.Contains(err.Error(), "MAIL_API_KEY") || strings.Contains(err.Error(), "fi\tve")) {
			t.Errorf("%q, %q: %v, want it taken: %v", c.value, c.file, err, c.ok)
		}
	}
}
