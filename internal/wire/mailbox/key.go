package mailbox

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"slices"
	"strconv"
	"strings"
	"sync"

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

// Secret makes keys of addresses that nobody can try who does not have it: the
// first 8 bytes of an HMAC-SHA-256 of the address in one spelling.
type Secret struct {
	id    string
	works *sync.Pool // of *keying: to prepare one for the secret takes longer than a key
}

// keying makes one key at a time. Both hashes of an HMAC begin with a block that depends on the secret alone, and go on here
// from the state behind that. The text is padded and the state is read without Sum, which takes as long as the hash itself.
type keying struct {
	sha          sha
	inner, outer []byte // states
	text, state  []byte
	last         []byte // what follows the block of the outer hash
}

// sha is a SHA-256 that can be set to a state.
type sha interface {
	hash.Hash
	encoding.BinaryUnmarshaler
	encoding.BinaryAppender
}

func newKeying(secret []byte) *keying {
	w := &keying{sha: sha256.New().(sha), last: pad(make([]byte, sha256.Size))}
	if len(secret) > sha256.BlockSize {
		sum := sha256.Sum256(secret)
		secret = sum[:]
	}
	begin := func(pad byte) []byte {
		block := bytes.Repeat([]byte{pad}, sha256.BlockSize)
		subtle.XORBytes(block, block, secret)
		w.sha.Reset()
		_, _ = w.sha.Write(block) // a hash takes everything
		state, _ := w.sha.AppendBinary(nil)
		return state
	}
	w.inner, w.outer = begin(0x36), begin(0x5c)
	return w
}

// NewSecret makes one of a text that is long and random.
func NewSecret(text string) *Secret {
	key := []byte(text)
	s := &Secret{works: &sync.Pool{New: func() any { return newKeying(key) }}}
	w := s.works.Get().(*keying)
	w.text = append(w.text, "id of this secret"...) // not an address: those have an @ and no space outside quotes
	s.id = hex.EncodeToString(w.hash()[:4])
	return s
}

// ID says which secret it is, and nothing else of it.
func (s *Secret) ID() string { return s.id }

// Format shows the id, for every verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("secret " + s.id)) }

// KeysOf is a list of the keys of a sender, "" if none is named, and recipients.
func (s *Secret) KeysOf(from string, to []string) []byte {
	keys := AppendKey(make([]byte, 0, keySize*(1+len(to))), s.KeyOf(from))
	w := s.works.Get().(*keying)
	defer s.works.Put(w)
	for _, address := range to {
		keys = AppendKey(keys, w.key(address))
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
	w := s.works.Get().(*keying)
	defer s.works.Put(w)
	return w.key(mailbox)
}

func (w *keying) key(mailbox string) Key {
	if mailbox == "" {
		return 0
	}
	if w.plain(mailbox); len(w.text) == 0 {
		w.text = Append(w.text, fold(bare(mailbox)))
	}
	return Key(binary.BigEndian.Uint64(w.hash()))
}

// plain has w.text be the mailbox in its one spelling if its characters are those that nearly all have, else nothing: they make
// no display name and no quotes, whatever their order.
func (w *keying) plain(mailbox string) {
	w.text = slices.Grow(w.text[:0], len(mailbox))[:len(mailbox)]
	at := false
	for i := range w.text {
		c := InAddress[mailbox[i]]
		if c == 0 {
			w.text = w.text[:0]
			return
		}
		at = at || c == '@'
		w.text[i] = c
	}
	if !at {
		w.text = w.text[:0]
	}
	w.text = bytes.TrimSuffix(w.text, []byte("."))
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

// hash is the HMAC-SHA-256 of w.text.
func (w *keying) hash() []byte {
	w.text = pad(w.text)
	copy(w.last, w.after(w.inner, w.text))
	return w.after(w.outer, w.last)
}

// after is the SHA-256 of a block, known by the state behind it, and of blocks that end with their padding.
func (w *keying) after(state, blocks []byte) []byte {
	_ = w.sha.UnmarshalBinary(state)
	_, _ = w.sha.Write(blocks)
	w.state, _ = w.sha.AppendBinary(w.state[:0])
	return w.state[len("sha2"):][:sha256.Size]
}

// pad appends the padding of SHA-256 to a text that follows one block.
func pad(text []byte) []byte {
	var padding [sha256.BlockSize]byte
	padding[0] = 0x80
	n := len(text)
	text = append(text, padding[:1+(2*sha256.BlockSize-9-n%sha256.BlockSize)%sha256.BlockSize]...)
	return binary.BigEndian.AppendUint64(text, 8*uint64(sha256.BlockSize+n))
}
