// Package keyfile reads secrets from files, such as mounted secrets.
package keyfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// maxSize is the maximum size of a secret's file in bytes.
const maxSize = 64 << 10

// Read returns the secret in a file, without surrounding white space. Errors name the file and its problem, never its contents.
func Read(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", cause(err)
	}
	defer func() { _ = f.Close() }() // nothing was written
	b, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return "", cause(err)
	}
	text := strings.TrimSpace(string(b))
	switch {
	case len(b) > maxSize:
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
