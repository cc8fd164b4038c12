package mailbox

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/dchest/siphash"

	"errand/internal/wire"
)

// Key represents an address where the address itself must not be stored: 8 bytes that a
// Secret makes of it; 0 means no address.
type Key uint64

// fold is a bare address with the local part in lower case.
func fold(address string) string {
	at := max(0, strings.LastIndexByte(address, '@'))
	if lower := wire.Fold(address[:at]); lower != address[:at] {
		return lower + address[at:]
	}
	return address
}

// bare is the address in a mailbox; what holds none stays as it is. A dot at the end of
// the domain is not an address to net/mail, nor are some display names that are in use, such
// as one with a comma and without quotes.
func bare(mailbox string) string {
	if address, err := Parse(mailbox); err == nil {
		return address
	}
	inner := strings.TrimRight(mailbox, " ")
	if before, found := strings.CutSuffix(inner, ">"); found {
		inner = before[strings.LastIndexByte(before, '<')+1:]
	}
	if address, err := Parse(strings.TrimSuffix(inner, ".")); err == nil {
		return address
	}
	return mailbox
}

// Fold is the same for every spelling of a mailbox; false for a text that is not one.
func Fold(mailbox string) (string, bool) {
	if len(mailbox) > Longest {
		return "", false
	}
	address, err := Parse(bare(mailbox))
	if err != nil {
		return "", false
	}
	return string(Append(nil, fold(address))), true
}

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
	id     string
	k0, k1 uint64
}

// NewSecret makes one of a text that is long and random.
func NewSecret(text string) *Secret {
	sum := sha256.Sum256([]byte(text))
	s := &Secret{k0: binary.LittleEndian.Uint64(sum[:]), k1: binary.LittleEndian.Uint64(sum[8:])}
	// Not of an address: those have an @ and no space outside quotes.
	s.id = fmt.Sprintf("%08x", uint32(siphash.Hash(s.k0, s.k1, []byte("id of this secret"))))
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

// KeyOf returns the key of a mailbox, which may have a display name; 0 for "". It is the same
// for all spellings of an address: in any case, the local part included, with quotes or
// without where none are needed, with the domain in Unicode or in ASCII, with or without a
// dot at its end. Two recipients of one request may have the same key.
func (s *Secret) KeyOf(mailbox string) Key {
	if mailbox == "" {
		return 0
	}
	text := plain(make([]byte, 0, 64), mailbox) // longer than nearly all, and on the stack
	if len(text) == 0 {
		text = Append(nil, fold(bare(mailbox)))
	}
	return Key(siphash.Hash(s.k0, s.k1, text))
}

// plain appends the mailbox in its one spelling if its characters are those that nearly all have, else nothing: they make
// no display name and no quotes, whatever their order.
func plain(dst []byte, mailbox string) []byte {
	at := false
	for i := range len(mailbox) {
		c := InAddress[mailbox[i]]
		if c == 0 {
			return nil
		}
		at = at || c == '@'
		dst = append(dst, c)
	}
	if !at {
		return nil
	}
	return bytes.TrimSuffix(dst, []byte("."))
}

// InAddress are the characters of an atom, the dot and the @, in lower case.
var InAddress = func() (in [256]byte) {
	for c := range in {
		if lower := byte(c); isAtom[c] || c == '.' || c == '@' {
			if 'A' <= lower && lower <= 'Z' {
				lower += 'a' - 'A'
			}
			in[c] = lower
		}
	}
	return in
}()
