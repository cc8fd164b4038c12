package messages

import (
	"encoding/binary"
	"fmt"
	"strconv"
)

// Key represents an address where the address itself must not be stored: the first
// 8 bytes of its RecipientKey. 0 is no address. It hides nothing from whoever has a
// list of addresses to try.
type Key uint64

// KeyOf is the key of a bare address; 0 for "".
func KeyOf(address string) Key {
	if address == "" {
		return 0
	}
	k := RecipientKey(address)
	return Key(binary.BigEndian.Uint64(k[:]))
}

// MarshalText writes 16 hexadecimal digits: as a number it would lose some in JavaScript.
func (k Key) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%016x", uint64(k)), nil }

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
