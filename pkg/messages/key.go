package messages

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// Key represents an address where the address itself must not be stored: the first
// 8 bytes of its SHA-256; 0 means no address. Anybody who has a list of addresses can
// try them, except where a RecipientSecret made the key.
type Key uint64

// KeyOf returns the key of a mailbox, which may have a display name; 0 for "". It is the same
// for all spellings of an address: in any case, the local part included, with quotes or
// without where none are needed, with the domain in Unicode or in ASCII, with or without a
// dot at its end. Two recipients of one request may have the same key.
func KeyOf(mailbox string) Key {
	if mailbox == "" {
		return 0
	}
	var room [maxAddress]byte
	sum := sha256.Sum256(AppendRecipient(room[:0], fold(bare(mailbox))))
	return Key(binary.BigEndian.Uint64(sum[:]))
}

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
// first 8 bytes of an HMAC-SHA-256 of the address in the spelling that KeyOf hashes.
type RecipientSecret struct {
	text []byte
	id   string
}

// NewRecipientSecret makes one of a text that is long and random.
func NewRecipientSecret(text string) *RecipientSecret {
	s := &RecipientSecret{text: []byte(text)}
	sum := s.sum([]byte("id of this secret")) // no address: those have an @ and no space outside quotes
	s.id = hex.EncodeToString(sum[:4])
	return s
}

// ID says which secret it is, and nothing else of it.
func (s *RecipientSecret) ID() string { return s.id }

// Format shows the id, for every verb.
func (s RecipientSecret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("secret " + s.id)) }

// KeyOf is the key of a mailbox, the same for all spellings of an address; 0 for "".
func (s *RecipientSecret) KeyOf(mailbox string) Key {
	if mailbox == "" {
		return 0
	}
	var room [maxAddress]byte
	sum := s.sum(AppendRecipient(room[:0], fold(bare(mailbox))))
	return Key(binary.BigEndian.Uint64(sum))
}

func (s *RecipientSecret) sum(text []byte) []byte {
	mac := hmac.New(sha256.New, s.text)
	_, _ = mac.Write(text) // a hash takes everything
	return mac.Sum(nil)
}
