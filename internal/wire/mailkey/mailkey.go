// Package mailkey represents mail addresses where they must not be stored.
package mailkey

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"

	"github.com/dchest/siphash"

	"errand/internal/wire/mailbox"
)

// Key represents an address where the address itself must not be stored: 8 bytes that a
// Secret makes of it; 0 means no address.
type Key uint64

// MarshalText writes 16 hexadecimal digits: as a number it would lose some in JavaScript.
func (k Key) MarshalText() ([]byte, error) { return k.append(make([]byte, 0, 2*keySize)), nil }

func (k Key) String() string { return string(k.append(nil)) }

func (k Key) append(b []byte) []byte {
	var octets [keySize]byte
	binary.BigEndian.PutUint64(octets[:], uint64(k))
	return hex.AppendEncode(b, octets[:])
}

// UnmarshalText reads what MarshalText writes.
func (k *Key) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 16, 64)
	*k = Key(n)
	return err
}

// keySize is how many bytes a key takes in a list.
const keySize = 8

// AppendKey adds a key to a list of them.
func AppendKey(list []byte, k Key) []byte { return binary.BigEndian.AppendUint64(list, uint64(k)) }

// Keys reads a list that AppendKey made; what is left over at the end is dropped.
func Keys(list []byte) []Key {
	keys := make([]Key, len(list)/keySize)
	for i := range keys {
		keys[i] = Key(binary.BigEndian.Uint64(list[i*keySize:]))
	}
	return keys
}

// Secret makes keys of addresses that nobody can try who does not have it: SipHash-2-4 (Aumasson and Bernstein, 2012) of the
// address in one spelling, which is a keyed hash of 8 bytes.
type Secret struct {
	id string
	// A pointer, since fmt prints unexported fields of unexported fields without asking their methods; of a pointer it prints the address.
	key *key
}

// key is what SipHash takes.
type key struct{ k0, k1 uint64 }

// NewSecret makes one of a text that is long and random.
func NewSecret(text string) *Secret {
	sum := sha256.Sum256([]byte(text))
	s := &Secret{key: &key{binary.LittleEndian.Uint64(sum[:]), binary.LittleEndian.Uint64(sum[8:])}}
	// Not of an address: those have an @ and no space outside quotes.
	s.id = fmt.Sprintf("%08x", uint32(siphash.Hash(s.key.k0, s.key.k1, []byte("id of this secret"))))
	return s
}

// ID says which secret it is, and nothing else of it.
func (s *Secret) ID() string { return s.id }

// Format shows the id, for every verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("secret " + s.id)) }

// KeysOf is a list of the keys of a sender, "" if none is named, and recipients.
func (s *Secret) KeysOf(from string, to []string) []byte {
	keys := AppendKey(make([]byte, 0, keySize*(1+len(to))), s.KeyOf(from))
	for _, address := range to {
		keys = AppendKey(keys, s.KeyOf(address))
	}
	return keys
}

// Parties returns the keys that KeysOf made, the sender's being 0 if none was named.
func Parties(list []byte) (from Key, to []Key) {
	if keys := Keys(list); len(keys) > 0 {
		return keys[0], keys[1:]
	}
	return 0, nil
}

// KeyOf returns the key of an address, which may have a display name; 0 for "". It is the same
// for all spellings of an address: in any case, the local part included, with quotes or
// without where none are needed, with the domain in Unicode or in ASCII, with or without a
// dot at its end. Two recipients of one request may have the same key.
func (s *Secret) KeyOf(address string) Key {
	if address == "" {
		return 0
	}
	return Key(siphash.Hash(s.key.k0, s.key.k1, mailbox.Spelling(make([]byte, 0, 64), address))) // longer than nearly all, and on the stack
}
