package keyfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Errors never contain what is in the file.
func TestReadReturnsTheSecretOrSaysWhatIsWrong(t *testing.T) {
	long := strings.Repeat("hush", maxSize/4) + "!"
	for name, c := range map[string]struct{ holds, want, wrong string }{
		"as it is":        {holds: "hush", want: "hush"},
		"with a line end": {holds: " hush hush\r\n", want: "hush hush"},
		"empty":           {holds: "\n \n", wrong: "the file is empty"},
		"too long":        {holds: long, wrong: "longer than any secret"},
	} {
		file := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(file, []byte(c.holds), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := Read(file)
		if got != c.want || (err == nil) != (c.wrong == "") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if err != nil && (!strings.Contains(err.Error(), c.wrong) || strings.Contains(err.Error(), "hush")) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	for path, wrong := range map[string]string{filepath.Join(t.TempDir(), "none"): "none: no such file", t.TempDir(): "is a directory"} {
		if _, err := Read(path); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%s: %v, want %q", path, err, wrong)
		}
	}
}
