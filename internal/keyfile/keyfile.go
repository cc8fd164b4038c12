// Package keyfile reads secrets from files, such as mounted secrets.
package keyfile

import (
	"crypto/rand"
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

// Made returns the key in a file, and makes one of so many bytes where there is none. A shorter one is an error.
func Made(file string, size int) ([]byte, error) {
	key, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		key = make([]byte, size)
		_, _ = rand.Read(key) // it never fails
		err = os.WriteFile(file, key, 0o600)
	}
	if err == nil && len(key) < size {
		err = fmt.Errorf("%s has %d bytes, and must have %d: remove it, and what was made with it is made again with another",
			file, len(key), size)
	}
	return key, err
}

func cause(err error) error {
	if path, ok := errors.AsType[*os.PathError](err); ok {
		return fmt.Errorf("%s: %w", path.Path, path.Err)
	}
	return err
}
