package index

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"os"
	"path/filepath"

	"errand/internal/names"
	"errand/internal/wire/mailbox"
)

// whats are what names are of their request, by their number in the file: one is added at the end.
var whats = []names.As{
	names.Order, names.Payer, names.Recipient, names.Address, names.Callback,
}

// keySize is how many bytes a key has at least.
const keySize = 32

const keyFile = "key"

// loadKey reads the key of an index, and makes it where there is none.
func loadKey(dir string) ([]byte, error) {
	path := filepath.Join(dir, keyFile)
	key, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		key = make([]byte, keySize)
		_, _ = rand.Read(key) // it never fails
		err = os.WriteFile(path, key, 0o600)
	}
	if err == nil && len(key) < keySize {
		err = fmt.Errorf("%s has %d bytes, and must have %d: remove it, and the index is made again with another", path, len(key), keySize)
	}
	if err != nil {
		return nil, fmt.Errorf("index: its key: %w", err)
	}
	return key, nil
}

// hasher makes the hashes that names are kept as. They are cut to what a row of the database
// holds as a number: among a thousand million names, two have the same once in forty tries.
type hasher struct {
	key []byte
	mac hash.Hash
	sum []byte
}

func newHasher(key []byte) *hasher { return &hasher{key: key, mac: hmac.New(sha256.New, key)} }

func (h *hasher) of(purpose string, parts ...[]byte) int64 {
	h.mac.Reset()
	_, _ = h.mac.Write([]byte(purpose)) // a hash takes everything
	for _, part := range parts {
		_, _ = h.mac.Write(part)
	}
	h.sum = h.mac.Sum(h.sum[:0])
	return int64(binary.BigEndian.Uint64(h.sum))
}

// name is the hash of a name.
func (h *hasher) name(n names.Name) int64 {
	purpose := "address:"
	switch n.As {
	case names.Order:
		purpose = "order:"
	case names.Callback: // an order number or another text
		purpose = "callback:"
	}
	return h.of(purpose, []byte(n.Key))
}

// recipient is the hash of an address of which only the key is known, which a secret made.
func (h *hasher) recipient(secret string, key mailbox.Key) int64 {
	return h.of("key:"+secret+":", binary.BigEndian.AppendUint64(nil, uint64(key)))
}

// check is what a file keeps in order to know whether it was made with the key.
func (h *hasher) check() []byte { return binary.BigEndian.AppendUint64(nil, uint64(h.of("check:"))) }
