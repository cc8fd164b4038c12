// Package keyfile reads secrets that are kept in files, as mounted secrets are.
package keyfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// most is the longest secret that a file may hold, in bytes.
const most = 64 << 10

// Read gives the secret in a file as it is now, without the white space around it: an
// editor ends a file with a line break. Errors name the file or what is wrong with it,
// never what it holds.
func Read(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", cause(err)
	}
	defer func() { _ = f.Close() }() // it was only read
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return "", cause(err)
	}
	text := strings.TrimSpace(string(b))
	switch {
	case len(b) > most:
		return "", errors.New("the file is longer than any secret")
	case text == "":
		return "", errors.New("the file is empty")
	}
	return text, nil
}

func cause(err error) error {
	if path, ok := errors.AsType[*os.PathError](err); ok {
		return fmt.Errorf("%s: %w", path.Path, path.Err)
	}
	return err
}
