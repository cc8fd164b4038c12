// Package schema writes what pkg/messages says as documents that other languages read: a JSON Schema (2020-12) for the
// body of each request and event, and an AsyncAPI 3.0 document of all subjects.
//
//	types of pkg/messages ──┐
//	rules of requests ──────┼──> docs/schemas/<subject>.json, docs/asyncapi.yaml
//	docs/use/reference.md ───────┘    (go generate ./docs/schemas)
//
// The names, the types and what is required come from the Go types; the words and the values of closed sets come from
// docs/use/reference.md, which tests of pkg/messages hold to the code; the rules of requests are here, and a test holds
// them to the decoders. Nothing here is shipped: what it makes is committed.
package schema

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"slices"

	"errand/internal/style"
	"errand/internal/wire"
	"errand/pkg/messages"
)

const dialect = "https://json-schema.org/draft/2020-12/schema"

// object is a JSON object whose members keep their order.
type object []member

type member struct {
	name  string
	value any
}

// MarshalJSON writes the members in order.
func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		for _, part := range []any{m.name, m.value} {
			text, err := wire.Marshal(part)
			if err != nil {
				return nil, err
			}
			b.Write(text)
			b.WriteByte(':')
		}
		b.Truncate(b.Len() - 1)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// pretty is indented JSON with invisible characters escaped.
func pretty(value any) ([]byte, error) {
	text, err := wire.Marshal(value)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = json.Indent(&b, text, "", "  ")
	return []byte(style.Escape(b.String()) + "\n"), err
}

// Files are the documents by their path from docs/, made from the text of docs/use/reference.md.
func Files(document []byte) (map[string][]byte, error) {
	said, err := readDescriptions(string(document))
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	add := func(subject string, body object) error {
		head := object{{"$schema", dialect}, {"$id", "urn:errand:" + subject}, {"title", subject}, {"description", said.about[subject]}}
		text, err := pretty(append(head, body...))
		files["schemas/"+subject+".json"] = text
		return err
	}
	for _, r := range requests {
		body, err := r.schema(said)
		if err := cmp.Or(err, add(r.operation.Requested(), body)); err != nil {
			return nil, err
		}
	}
	for _, e := range events {
		body, err := eventSchema(e, said)
		if err := cmp.Or(err, add(name(e), body)); err != nil {
			return nil, err
		}
	}
	if files["asyncapi.yaml"], err = asyncAPI(said); err != nil {
		return nil, err
	}
	return files, nil
}

// open are the operations whose states are whatever the service says: their events have one
// schema for all states but erased.
var open = map[messages.Operation]bool{messages.Application: true, messages.Deduction: true}

// name is what the documents call an event: its subject without the id and an open state.
func name(e messages.Event) string {
	if open[e.Operation] && e.State != messages.Erased {
		return string(e.Operation)
	}
	return e.Type()
}

// definitions are the $defs that a schema refers to.
type definitions map[string]object

// ref refers to a rule by its name, and defines it with the rules that it refers to.
func (d definitions) ref(name string) object {
	d[name] = rules[name]
	switch name {
	case "headers":
		d.ref("leftOut")
	case "listObject":
		d.ref("line")
	}
	return object{{"$ref", "#/$defs/" + name}}
}

func (d definitions) sorted() (all object) {
	for _, name := range slices.Sorted(maps.Keys(d)) {
		all = append(all, member{name, d[name]})
	}
	return all
}
