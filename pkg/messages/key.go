package messages

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"strconv"
	"strings"
	"sync"
)

// Key represents an address where the address itself must not be stored: 8 bytes that a
// RecipientSecret makes of it; 0 means no address.
type Key uint64

// fold is a bare address with the local part in lower case.
func fold(address string) string {
	at := max(0, strings.LastIndexByte(address, '@'))
	if lower := strings.ToLower(address[:at]); lower != address[:at] {
		return lower + address[at:]
	}
	return address
}

// bare is the address in a mailbox; what holds none stays as it is. A dot at the end of
// the domain is not an address to net/mail, nor are some display names that are in use, such
// as one with a comma and without quotes.
func bare(mailbox string) string {
	if address, err := ParseRecipient(mailbox); err == nil {
		return address
	}
	inner := strings.TrimRight(mailbox, " ")
	if before, found := strings.CutSuffix(inner, ">"); found {
		inner = before[strings.LastIndexByte(before, '<')+1:]
	}
	if address, err := ParseRecipient(strings.TrimSuffix(inner, ".")); err == nil {
		return address
	}
	return mailbox
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

// RecipientSecret makes keys of addresses that nobody can try who does not have it: the
// first 8 bytes of an HMAC-SHA-256 of the address in one spelling.
type RecipientSecret struct {
	id    string
	works *sync.Pool // of *keying: to prepare one for the secret takes longer than a key
}

// keying makes one key at a time.
type keying struct {
	mac       hash.Hash
	text, sum []byte
}

// NewRecipientSecret makes one of a text that is long and random.
func NewRecipientSecret(text string) *RecipientSecret {
	key := []byte(text)
	s := &RecipientSecret{works: &sync.Pool{New: func() any { return &keying{mac: hmac.New(sha256.New, key)} }}}
	w := s.works.Get().(*keying)
	w.text = append(w.text, "id of this secret"...) // not an address: those have an @ and no space outside quotes
	s.id = hex.EncodeToString(w.hash()[:4])
	return s
}

// ID says which secret it is, and nothing else of it.
func (s *RecipientSecret) ID() string { return s.id }

// Format shows the id, for every verb.
func (s RecipientSecret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("secret " + s.id)) }

// KeyOf returns the key of a mailbox, which may have a display name; 0 for "". It is the same
// for all spellings of an address: in any case, the local part included, with quotes or
// without where none are needed, with the domain in Unicode or in ASCII, with or without a
// dot at its end. Two recipients of one request may have the same key.
func (s *RecipientSecret) KeyOf(mailbox string) Key {
	if mailbox == "" {
		return 0
	}
	w := s.works.Get().(*keying)
	defer s.works.Put(w)
	w.text = AppendRecipient(w.text[:0], fold(bare(mailbox)))
	return Key(binary.BigEndian.Uint64(w.hash()))
}

func (w *keying) hash() []byte {
	w.mac.Reset()
	_, _ = w.mac.Write(w.text) // a hash takes everything
	w.sum = w.mac.Sum(w.sum[:0])
	return w.sum
}
