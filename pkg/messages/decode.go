package messages

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"errand/internal/wire"
)

// form is a request's body on its way from text to struct: the members found,
// and the faults so far.
type form struct {
	text   []byte
	copied string // text once more, for short strings to share; "" for long text
	meta   Meta
	found  [32]span // of each field, in the order of the fields
	faults map[string][]string
	named  int // faults under names that the producer chose
}

// Strings of a body up to this size share one copy of it.
const sharedText = 4 << 10

// maxNamed bounds how many faults are reported under names that the producer
// chose, so that no request can make an event that is too large to store.
const maxNamed = 20

// field is one member that a request may have.
type field[R any] struct {
	name string
	need need
	read func(*R, value) // called unless the value is left out
}

type need bool

const (
	optional need = false
	required need = true
)

// decode reads a request's body into r by its fields; checks look at more than one field. Whatever the faults, r
// holds the fields that have none.
func decode[R any](data []byte, fields []field[R], r *R, checks ...func(*form, *R)) (Meta, error) {
	f := &form{text: data}
	open, ok := f.open()
	if !ok {
		return f.meta, f.err()
	}
	scanMembers(f, open, fields)
	f.fingerprint(open)
	for i, fl := range fields {
		v := value{form: f, name: fl.name, at: f.found[i]}
		v.raw = v.at.of(data)
		v.kind = kindOf(v.raw)
		switch {
		case v.kind != absent:
			fl.read(r, v)
		case fl.need == required:
			f.fault(fl.name, "is required")
		}
	}
	for _, check := range checks {
		check(f, r)
	}
	return f.meta, f.err()
}

// open checks the message as a whole and returns the place of its opening brace.
func (f *form) open() (int, bool) {
	i := wire.SkipSpace(f.text, 0)
	switch {
	case i == len(f.text):
		f.fault("body", "is empty")
	case !utf8.Valid(f.text):
		f.fault("body", "is not UTF-8")
	case !isJSON(f.text):
		f.fault("body", "is not JSON")
	case f.text[i] != '{':
		f.fault("body", "must be a JSON object")
	default:
		if len(f.text) <= sharedText {
			f.copied = string(f.text)
		}
		return i, true
	}
	return 0, false
}

// scanMembers finds the values of the fields. Other members are faults, and so are two of one name.
func scanMembers[R any](f *form, open int, fields []field[R]) {
	var scratch [64]byte
	for c := enter(f.text, open); ; {
		key, at, ok := c.member()
		if !ok {
			return
		}
		name := key.of(f.text)
		if wire.HasEscape(name) {
			name = wire.AppendText(scratch[:0], name)
		} else {
			name = name[1 : len(name)-1]
		}
		i := 0
		for i < len(fields) && fields[i].name != string(name) {
			i++
		}
		switch {
		case i == len(fields):
			f.faultNamed(cleanName(string(name)), "is not a known field")
		case f.found[i] != span{}:
			f.fault(fields[i].name, "is given twice")
		default:
			f.found[i] = at
		}
	}
}

// fault notes that the field breaks the rule.
func (f *form) fault(name, rule string) {
	if f.faults == nil {
		f.faults = map[string][]string{}
	}
	if !slices.Contains(f.faults[name], rule) {
		f.faults[name] = append(f.faults[name], rule)
	}
}

// faultNamed is fault for a name that the producer chose, cleaned.
func (f *form) faultNamed(name, rule string) {
	if f.named++; f.named > maxNamed {
		f.fault("body", "has more faults than are listed")
		return
	}
	f.fault(name, rule)
}

// cleanName makes a producer's name fit to be shown.
func cleanName(name string) string {
	if name == "" {
		return `""`
	}
	return wire.CutTo(name, 64)
}

// err is the faults as an error, nil when there are none.
func (f *form) err() error {
	if f.faults == nil {
		return nil
	}
	fields := make(map[string][]string, len(f.faults))
	for _, name := range slices.Sorted(maps.Keys(f.faults)) {
		field, path, nested := strings.Cut(name, within)
		for _, rule := range f.faults[name] {
			if nested {
				rule = strings.ReplaceAll(path, within, ".") + " " + rule
			}
			fields[field] = append(fields[field], rule)
		}
	}
	return &Invalid{Fields: fields}
}

// within joins the names of a member and of the object it belongs to: faults are
// reported under the name of the request's own field. No name holds a control
// character.
const within = "\x00"

// slice is a part of the text as a string.
func (f *form) slice(s span) string {
	if f.copied != "" {
		return f.copied[s.from:s.to]
	}
	return string(s.of(f.text))
}

// isJSON is json.Valid, which takes its time for each byte. A long text is mostly inside
// strings, a list of recipients above all: what needs no look there is left out for it.
func isJSON(text []byte) bool {
	if len(text) < 1<<10 {
		return json.Valid(text)
	}
	outline := make([]byte, 0, 1<<10)
	for {
		quote := bytes.IndexByte(text, '"')
		if quote < 0 {
			return json.Valid(append(outline, text...))
		}
		outline, text = append(outline, text[:quote+1]...), text[quote+1:]
		opened, inList := len(outline), bytes.HasSuffix(outline, []byte(`["`))
		for inside := true; inside && len(text) > 0; {
			text = text[wire.SkipOrdinary(text, 0):]
			kept := 1 // the closing quote, or what must not be there
			switch {
			case bytes.HasPrefix(text, []byte(`\u`)):
				kept = len(`\u0000`)
			case bytes.HasPrefix(text, []byte(`\`)):
				kept = len(`\n`)
			case len(text) > 0:
				inside = text[0] != '"'
			}
			if !inside && inList && len(outline) == opened {
				if next := nextInList(text); next > 0 {
					text, inside = text[next:], true // as if the list began with the next one
					continue
				}
			}
			kept = min(kept, len(text))
			outline, text = append(outline, text[:kept]...), text[kept:]
		}
	}
}

// nextInList is the place behind the opening quote of the string that follows one that ends at the beginning of text, 0 if none does.
func nextInList(text []byte) int {
	comma := wire.SkipSpace(text, 1)
	if comma >= len(text) || text[comma] != ',' {
		return 0
	}
	if quote := wire.SkipSpace(text, comma+1); quote < len(text) && text[quote] == '"' {
		return quote + 1
	}
	return 0
}
