package index

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"hash"

	"errand/internal/names"
	"errand/internal/wire/mailkey"
)

// whats are what names are of their request, by their number in the file: one is added at the end.
var whats = []names.As{
	names.Order, names.Payer, names.Recipient, names.Address, names.Callback,
}

// keyFile has the key of an index, of keySize bytes at least.
const (
	keyFile = "key"
	keySize = 32
)

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
func (h *hasher) recipient(secret string, key mailkey.Key) int64 {
	return h.of("key:"+secret+":", binary.BigEndian.AppendUint64(nil, uint64(key)))
}

// check is what a file keeps in order to know whether it was made with the key.
func (h *hasher) check() []byte { return binary.BigEndian.AppendUint64(nil, uint64(h.of("check:"))) }
