package messages

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
)

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
