package mailbox

import (
	"bytes"
	"strings"

	"errand/internal/wire"
)

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

// Spelling appends the one spelling that all of a mailbox have; a text that is not one stays as it is.
func Spelling(dst []byte, mailbox string) []byte {
	if text := plain(dst, mailbox); text != nil {
		return text
	}
	return Append(dst, fold(bare(mailbox)))
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
