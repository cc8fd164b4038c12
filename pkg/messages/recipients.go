package messages

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"iter"

	"errand/internal/wire"
	"errand/internal/wire/mailbox"
)

// Recipients is a list for a SendRequest's To, nil when it is empty.
func Recipients(addresses ...string) json.RawMessage {
	if len(addresses) == 0 {
		return nil
	}
	text, _ := wire.Marshal(addresses) // strings always encode
	return text
}

// ParseRecipient returns the bare address of one recipient, without display name and comments. The error is the reason in a few
// words, without the address.
func ParseRecipient(text string) (address string, err error) { return mailbox.Parse(text) }

// Addresses are the recipients of To, for ParseRecipient to judge: the elements of the array, or what is between the commas of a
// string, but for those within a quoted string or a comment of RFC 5322.
func (r *SendRequest) Addresses() iter.Seq[string] { return addresses(r.To) }

func addresses(raw []byte) iter.Seq[string] {
	return func(yield func(string) bool) {
		if kindOf(raw) == absent {
			return
		}
		list := texts{from: raw}
		if raw[0] == '"' {
			list.element(span{0, len(raw)}, false, yield)
			return
		}
		for c := enter(raw, 0); ; {
			if raw[c.at] == '"' {
				s := span{c.at + 1, c.at + 1}
				for mailbox.InAddress[raw[s.to]] != 0 {
					s.to++
				}
				if s.from < s.to && raw[s.to] == '"' { // nothing to look at closer
					if !yield(list.text(s)) {
						return
					}
					c.pass(s.to + 1)
					continue
				}
			}
			at, ok := c.element()
			if !ok || !list.element(at, true, yield) {
				return
			}
		}
	}
}

// texts makes strings of parts of a long text. Neighbours share one string, so
// that a hundred thousand addresses are not as many allocations, and each
// string is small enough not to keep the whole list alive.
type texts struct {
	from  []byte
	at    span // the part of from that chunk is
	chunk string
}

const chunkSize = 32 << 10

func (t *texts) text(s span) string {
	if s.from < t.at.from || s.to > t.at.to {
		t.at = span{s.from, min(max(s.to, s.from+chunkSize), len(t.from))}
		t.chunk = string(t.at.of(t.from))
	}
	return t.chunk[s.from-t.at.from : s.to-t.at.from]
}

// element yields the addresses of the JSON string at s, alone for an element
// of an array.
func (t *texts) element(s span, alone bool, yield func(string) bool) bool {
	inner := span{s.from + 1, s.to - 1}
	if raw := s.of(t.from); wire.HasEscape(raw) {
		text := wire.AppendText(nil, raw)
		t, inner = &texts{from: text}, span{0, len(text)}
	}
	if inner = t.trim(inner); inner.from == inner.to {
		return !alone || yield("")
	}
	if bytes.IndexByte(inner.of(t.from), ',') < 0 {
		return yield(t.text(inner))
	}
	return t.split(inner, yield)
}

// split yields what is between the commas of an address list.
func (t *texts) split(s span, yield func(string) bool) bool {
	for s.from <= s.to {
		end := t.partEnd(t.trim(s))
		if part := t.trim(span{s.from, end}); part.from < part.to && !yield(t.text(part)) {
			return false
		}
		s.from = end + 1
	}
	return true
}

// partEnd is where the part ends that s begins with: at the first comma that no
// quoted string and no comment hides, or, where the part up to there is no
// address, at the first comma of all. It looks no further than an address may
// be long, so that a list of any length is split in linear time.
func (t *texts) partEnd(s span) int {
	text := s.of(t.from)
	comma := bytes.IndexByte(text, ',')
	if comma < 0 {
		return s.to
	}
	plain := s.from + comma
	if bytes.IndexByte(text[:comma], '"') < 0 && bytes.IndexByte(text[:comma], '(') < 0 {
		return plain
	}
	end := s.from + visibleComma(text[:min(len(text), mailbox.Longest)])
	if end == s.from+mailbox.Longest && end < s.to {
		return plain
	}
	if _, err := ParseRecipient(t.text(t.trim(span{s.from, end}))); err != nil {
		return plain
	}
	return end
}

// visibleComma is the place of the first comma of text that is not within a
// quoted string or a comment of RFC 5322, else the length of text.
func visibleComma(text []byte) int {
	quoted, depth := false, 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && (quoted || depth > 0):
			i++
		case c == '"' && depth == 0:
			quoted = !quoted
		case c == '(' && !quoted:
			depth++
		case c == ')' && depth > 0:
			depth--
		case c == ',' && !quoted && depth == 0:
			return i
		}
	}
	return len(text)
}

// trim leaves out the spaces and line breaks around a text.
func (t *texts) trim(s span) span {
	for s.from < s.to && isSpace(t.from[s.from]) {
		s.from++
	}
	for s.from < s.to && isSpace(t.from[s.to-1]) {
		s.to--
	}
	return s
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// maxLine is how much of one line of a recipient list is looked at, in octets.
const maxLine = 16 << 10

// Lines returns the lines of a recipient list that are not empty, trimmed. An error of the reader comes last.
func Lines(r io.Reader) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		in := bufio.NewReaderSize(r, maxLine)
		if mark, _ := in.Peek(3); string(mark) == "\ufeff" {
			_, _ = in.Discard(3)
		}
		for {
			line, err := in.ReadSlice('\n')
			text := string(bytes.TrimSpace(line))
			if errors.Is(err, bufio.ErrBufferFull) {
				text = string(line) // never empty, so that it is reported
			}
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = in.ReadSlice('\n')
			}
			if err != nil && !errors.Is(err, io.EOF) {
				yield("", err)
				return
			}
			if text != "" && !yield(text, nil) || err != nil {
				return
			}
		}
	}
}
