package messages

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"slices"
	"strings"
	"sync"

	"errand/internal/wire"
)

// fingerprint fills in the fingerprint: the SHA-256 of the body as compact JSON, keys
// sorted by their text at every level, strings with no more escapes than JSON
// asks for, numbers in their one form (see wire.AppendNumber), without the top
// level's request_id.
func (f *form) fingerprint(open int) {
	p := canonicalizers.Get().(*canonicalizer)
	defer canonicalizers.Put(p)
	p.begin(f.text)
	p.object(open, 0)
	f.meta.Fingerprint = p.sum()
	for _, name := range p.twice {
		f.faultNamed(name, "is given twice")
	}
}

// canonicalizer writes JSON in its one canonical form into a hash.
type canonicalizer struct {
	hash    hash.Hash
	text    []byte
	out     *bufio.Writer // into hash
	members []member
	scratch []byte
	result  [sha256.Size]byte
	top     []byte   // the member of the top level that is being written
	twice   []string // names given twice below the top level, or unknown ones at it
}

type member struct {
	key   []byte // its text
	value span
}

var canonicalizers = sync.Pool{New: func() any {
	h := sha256.New()
	return &canonicalizer{hash: h, out: bufio.NewWriterSize(h, flushAt)}
}}

// flushAt is how much is gathered before it is hashed.
const flushAt = 4 << 10

// maxDepth bounds the recursion. What is nested deeper is hashed as it was
// written; no valid request goes that deep.
const maxDepth = 32

func (p *canonicalizer) begin(text []byte) {
	p.hash.Reset()
	p.out.Reset(p.hash)
	p.text, p.top, p.twice = text, nil, nil
}

func (p *canonicalizer) sum() string {
	_ = p.out.Flush()
	sum := p.hash.Sum(p.result[:0])
	p.scratch = hex.AppendEncode(p.scratch[:0], sum)
	// A large request must not be kept alive, nor what it made the canonicalizer grow to.
	p.text = nil
	clear(p.members[:cap(p.members)])
	if cap(p.members) > 1024 {
		p.members = nil
	}
	text := string(p.scratch)
	if cap(p.scratch) > 16*flushAt {
		p.scratch = nil
	}
	return text
}

// What follows adds to the hash, which takes everything.

func (p *canonicalizer) add(c byte)      { _ = p.out.WriteByte(c) }
func (p *canonicalizer) copy(raw []byte) { _, _ = p.out.Write(raw) }

// separate adds a comma, but not the first time.
func (p *canonicalizer) separate(first *bool) {
	if !*first {
		p.add(',')
	}
	*first = false
}

// value adds the value that begins at i and returns the place behind it.
func (p *canonicalizer) value(i, depth int) int {
	var end int
	switch c := p.text[i]; {
	case c == '"':
		end = wire.SkipString(p.text, i)
		p.string(p.text[i:end])
		return end
	case depth <= maxDepth && c == '{':
		return p.object(i, depth)
	case depth <= maxDepth && c == '[':
		return p.array(i, depth)
	}
	end = wire.SkipValue(p.text, i)
	raw := p.text[i:end]
	if c := raw[len(raw)-1]; wire.IsDigit(c) && !isInteger(raw) {
		p.scratch = wire.AppendNumber(p.scratch[:0], raw)
		raw = p.scratch
	}
	p.copy(raw)
	return end
}

func (p *canonicalizer) array(i, depth int) int {
	p.add('[')
	first := true
	c := enter(p.text, i)
	for p.text[c.at] != ']' {
		p.separate(&first)
		end := wire.SkipStrings(p.text, c.at)
		if p.copy(p.text[c.at:end]); end == c.at {
			end = p.value(c.at, depth+1)
		}
		c.pass(end)
	}
	p.add(']')
	return c.at + 1
}

func (p *canonicalizer) object(i, depth int) int {
	base := len(p.members)
	c := enter(p.text, i)
	for {
		key, value, ok := c.member()
		if !ok {
			break
		}
		raw := key.of(p.text)
		name := raw[1 : len(raw)-1]
		if wire.HasEscape(raw) {
			name = wire.AppendText(nil, raw)
		}
		p.members = append(p.members, member{name, value})
	}
	slices.SortStableFunc(p.members[base:], func(a, b member) int { return bytes.Compare(a.key, b.key) })
	p.add('{')
	first := true
	for j := base; j < len(p.members); j++ {
		m := p.members[j]
		p.noteTwice(j, base, depth)
		if depth == 0 {
			p.top = m.key
			if string(p.top) == "request_id" {
				continue
			}
		}
		p.separate(&first)
		p.quote(m.key)
		p.add(':')
		p.value(m.value.from, depth+1)
	}
	p.add('}')
	p.members = p.members[:base]
	return c.at + 1
}

// noteTwice notes the member's name when the one before it has the same.
func (p *canonicalizer) noteTwice(j, base, depth int) {
	if j == base || !bytes.Equal(p.members[j].key, p.members[j-1].key) || len(p.twice) > maxNamed {
		return
	}
	name := cleanName(string(p.members[j].key))
	if depth > 0 {
		name = cleanName(string(p.top)) + within + name
	}
	p.twice = append(p.twice, name)
}

// string adds the JSON string in raw.
func (p *canonicalizer) string(raw []byte) {
	if !wire.HasEscape(raw) {
		p.copy(raw) // nothing in it needs one
		return
	}
	p.scratch = wire.AppendText(p.scratch[:0], raw)
	p.quote(p.scratch)
}

// quote adds text as a JSON string.
func (p *canonicalizer) quote(text []byte) {
	const digits = "0123456789abcdef"
	p.add('"')
	from := 0
	for i, c := range text {
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		p.copy(text[from:i])
		from = i + 1
		p.add('\\')
		if short := strings.IndexByte("\"\\\b\f\n\r\t", c); short >= 0 {
			p.add(`"\bfnrt`[short])
		} else {
			p.copy([]byte{'u', '0', '0', digits[c>>4], digits[c&15]})
		}
	}
	p.copy(text[from:])
	p.add('"')
}

// isInteger says whether the JSON number in raw is an integer in its one form.
func isInteger(raw []byte) bool {
	for i, c := range raw {
		if !wire.IsDigit(c) && (c != '-' || i > 0) {
			return false
		}
	}
	return string(raw) != "-0"
}
