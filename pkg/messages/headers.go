package messages

import (
	"iter"
	"strings"

	"errand/internal/wire"
)

// headers are further mail headers, by name. The email document does not show
// their format; an object of strings is assumed. A null or empty header counts
// as left out. RFC 5322 names have no case, so one must not come in two.
func (v value) headers() map[string]string {
	if !v.must(v.kind == anObject, "must be an object of strings") {
		return nil
	}
	headers := make(map[string]string)
	lower := make(map[string]bool)
	for name, header := range v.members() {
		low := strings.ToLower(name)
		switch {
		case len(lower) == wire.MaxHeaders:
			v.fault("must have at most 100 members")
			return headers
		case wire.HeaderFault(name) != "":
			v.form.faultNamed(header.name, wire.HeaderFault(name))
		case lower[low]:
			v.form.faultNamed(header.name, "is given twice")
		case header.kind != absent:
			// One line only: a break would begin another header.
			if s := header.lineOf(wire.MaxHeaderValue, "must have at most 8000 characters"); s != "" {
				headers[name] = s
			}
		}
		lower[low] = true
	}
	if len(headers) == 0 {
		return nil
	}
	return headers
}

// members are the members of an object within a request, in order. The name of a value is its path.
func (v value) members() iter.Seq2[string, value] {
	return func(yield func(string, value) bool) {
		for c := enter(v.form.text, v.at.from); ; {
			key, at, ok := c.member()
			if !ok {
				return
			}
			name := string(wire.AppendText(nil, key.of(v.form.text)))
			raw := at.of(v.form.text)
			if !yield(name, value{v.form, v.name + within + cleanName(name), raw, at, kindOf(raw)}) {
				return
			}
		}
	}
}
