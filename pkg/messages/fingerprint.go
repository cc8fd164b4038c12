package messages

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"slices"
	"strings"
	"sync"
)

// sign fills in the fingerprint: the SHA-256 of the body as compact JSON, keys
// sorted by their text at every level, strings with no more escapes than JSON
// asks for, numbers as they were written, without the top level's request_id.
// The fields stand in the order of their names, which spares sorting them; a
// strange body, with other members, is sorted here.
func sign[R any](f *form, open int, strange bool, fields []field[R]) {
	p := presses.Get().(*press)
	defer presses.Put(p)
	p.begin(f.text)
	if strange {
		p.object(open, 0)
	} else {
		p.add('{')
		first := true
		for i := range fields {
			if f.found[i] == (span{}) || fields[i].name == "request_id" {
				continue
			}
			p.separate(&first)
			p.top = fields[i].name
			p.add('"')
			p.buf = append(p.buf, p.top...)
			p.add('"')
			p.add(':')
			p.value(f.found[i].from, 1)
		}
		p.add('}')
	}
	f.meta.Fingerprint = p.sum()
	for _, name := range p.twice {
		f.faultNamed(name, "is given twice")
	}
}

// press writes JSON in its one canonical form into a hash.
type press struct {
	hash    hash.Hash
	text    []byte
	buf     []byte // not hashed yet
	members []member
	scratch []byte
	result  [sha256.Size]byte
	top     string   // the member of the top level that is being written
	twice   []string // names given twice below the top level, or unknown ones at it
}

type member struct {
	key   []byte // its text
	value span
}

var presses = sync.Pool{New: func() any { return &press{hash: sha256.New(), buf: make([]byte, 0, pressed+64)} }}

// pressed is how much is gathered before it is hashed.
const pressed = 4 << 10

// deepest bounds the recursion. What lies deeper is hashed as it stands; no
// valid request goes that deep.
const deepest = 32

func (p *press) begin(text []byte) {
	p.hash.Reset()
	p.text, p.buf, p.top, p.twice = text, p.buf[:0], "", nil
}

func (p *press) sum() string {
	p.hash.Write(p.buf)
	sum := p.hash.Sum(p.result[:0])
	p.scratch = hex.AppendEncode(p.scratch[:0], sum)
	// A large request must not be kept alive, nor what it made the press grow to.
	p.text = nil
	clear(p.members[:cap(p.members)])
	if cap(p.members) > 1024 {
		p.members = nil
	}
	text := string(p.scratch)
	if cap(p.scratch) > 16*pressed {
		p.scratch = nil
	}
	return text
}

func (p *press) add(c byte) {
	if len(p.buf) >= pressed {
		p.flush()
	}
	p.buf = append(p.buf, c)
}

func (p *press) flush() {
	p.hash.Write(p.buf)
	p.buf = p.buf[:0]
}

// separate adds a comma, but not the first time.
func (p *press) separate(first *bool) {
	if !*first {
		p.add(',')
	}
	*first = false
}

// copy adds text as it stands.
func (p *press) copy(raw []byte) {
	if len(p.buf)+len(raw) > pressed {
		p.flush()
		if len(raw) > pressed {
			p.hash.Write(raw)
			return
		}
	}
	p.buf = append(p.buf, raw...)
}

// value adds the value that begins at i and gives the place behind it.
func (p *press) value(i, depth int) int {
	var end int
	switch c := p.text[i]; {
	case c == '"':
		end = skipString(p.text, i)
		p.string(p.text[i:end])
		return end
	case depth <= deepest && c == '{':
		return p.object(i, depth)
	case depth <= deepest && c == '[':
		return p.array(i, depth)
	}
	end = skipValue(p.text, i)
	p.copy(p.text[i:end])
	return end
}

func (p *press) array(i, depth int) int {
	p.add('[')
	first := true
	c := enter(p.text, i)
	for p.text[c.at] != ']' {
		p.separate(&first)
		c.pass(p.value(c.at, depth+1))
	}
	p.add(']')
	return c.at + 1
}

func (p *press) object(i, depth int) int {
	base := len(p.members)
	c := enter(p.text, i)
	for {
		key, value, ok := c.member()
		if !ok {
			break
		}
		raw := key.of(p.text)
		name := raw[1 : len(raw)-1]
		if hasEscape(raw) {
			name = appendText(nil, raw)
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
			p.top = string(m.key)
			if p.top == "request_id" {
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
func (p *press) noteTwice(j, base, depth int) {
	if j == base || !bytes.Equal(p.members[j].key, p.members[j-1].key) || len(p.twice) > maxNamed {
		return
	}
	name := cleanName(string(p.members[j].key))
	if depth > 0 {
		name = cleanName(p.top) + within + name
	}
	p.twice = append(p.twice, name)
}

// string adds the JSON string in raw.
func (p *press) string(raw []byte) {
	if !hasEscape(raw) {
		p.copy(raw) // nothing in it needs one
		return
	}
	p.scratch = appendText(p.scratch[:0], raw)
	p.quote(p.scratch)
}

// quote adds text as a JSON string.
func (p *press) quote(text []byte) {
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
