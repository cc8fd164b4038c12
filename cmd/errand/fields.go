package main

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"errand/internal/typo"
	"errand/internal/wire"
	"errand/pkg/messages"
)

func operationOf(subject string) (messages.Operation, error) {
	s := messages.ParseSubject(subject)
	if s.State == messages.Requested && !s.Dead && slices.Contains(messages.Requests, s.Operation) {
		return s.Operation, nil
	}
	var subjects []string
	for _, op := range messages.Requests {
		subjects = append(subjects, op.Requested())
	}
	hint := typo.DidYouMean(subject, subjects)
	switch {
	case strings.Contains(subject, ".lane."):
		hint = ": a lane is of enroll or send, is not the default one, and its name has up to 32 of a to z, 0 to 9 and -"
	case hint == "": // an operation, perhaps
		hint = typo.DidYouMean(subject+".requested", subjects)
	}
	return "", invalid("SUBJECT", "must be one of %s, got %q%s", strings.Join(subjects, ", "), subject, hint)
}

// body returns the request: made from the fields, or the unchanged bytes of a file or of standard input. It may be empty if
// the operation requires no field.
func body(op messages.Operation, fields []string, file string, c console) ([]byte, error) {
	switch {
	case len(fields) > 0 && file != "":
		return nil, invalid("--field", "must not be used together with --file")
	case len(fields) > 0:
		return object(op, fields)
	case file != "" && file != "-":
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, invalid("--file", "%s", err.Error())
		}
		return data, nil
	}
	if file == "-" || c.piped {
		data, err := io.ReadAll(c.in)
		if err != nil {
			return nil, invalid("standard input", "%s", err.Error())
		}
		if len(bytes.TrimSpace(data)) > 0 {
			return data, nil
		}
	}
	if op == messages.Account || op == messages.Transactions {
		return []byte("{}"), nil
	}
	return nil, invalid("--field", "the request is empty: use --field name=value, --file FILE, or JSON on standard input")
}

// object makes a request from name=value texts.
func object(op messages.Operation, fields []string) ([]byte, error) {
	texts := jsonNames(requests[op], reflect.TypeFor[string]())
	request := map[string]json.RawMessage{}
	for _, field := range fields {
		name, text, found := strings.Cut(field, "=")
		switch _, twice := request[name]; {
		case !found || name == "":
			return nil, invalid("--field", "must be name=value, got %q", field)
		case !utf8.ValidString(field): // JSON would change the text
			return nil, invalid("--field", "%s is not UTF-8: does the terminal or the script use another encoding?",
				strings.ToValidUTF8(name, "\uFFFD"))
		case twice:
			return nil, invalid("--field", "%s is given twice; write a list as %s='[…]'", name, name)
		}
		request[name] = value(text, slices.Contains(texts, name))
	}
	return literal(request), nil
}

// value returns text as JSON: unchanged if it is a JSON string or, unless the field is a text, a number, boolean, array or
// object; otherwise as a string. Digits with leading zeros are not a JSON number.
func value(text string, isText bool) []byte {
	if text != "null" && json.Valid([]byte(text)) && (!isText || strings.HasPrefix(strings.TrimSpace(text), `"`)) {
		return []byte(text)
	}
	return literal(text)
}

func literal(v any) []byte {
	text, _ := wire.Marshal(v) // our values always encode
	return text
}

// notKnown is the message for an unknown field.
const notKnown = "is not a known field"

// faults returns the rules that a request breaks, one per line, with suggestions for mistyped fields.
func faults(op messages.Operation, e *messages.Invalid) string {
	var b strings.Builder
	known := jsonNames(requests[op], nil)
	for _, field := range slices.Sorted(maps.Keys(e.Fields)) {
		for _, rule := range e.Fields[field] {
			b.WriteString("\n  " + printable(field+" "+rule))
			name, names := field, known
			if field == "lane" && op.HasLanes() {
				b.WriteString(": publish to " + op.RequestedIn("NAME"))
				continue
			}
			if nested, found := strings.CutSuffix(rule, " "+notKnown); found { // of to_object
				name, names = nested, jsonNames(reflect.TypeFor[messages.ObjectRef](), nil)
			} else if rule != notKnown {
				continue
			}
			b.WriteString(typo.DidYouMean(name, names))
		}
	}
	return b.String()
}

var requests = map[messages.Operation]reflect.Type{
	messages.Enroll:       reflect.TypeFor[messages.EnrollRequest](),
	messages.Transactions: reflect.TypeFor[messages.TransactionsRequest](),
	messages.Send:         reflect.TypeFor[messages.SendRequest](),
	messages.Account:      reflect.TypeFor[messages.AccountRequest](),
}

// jsonNames returns the JSON names of a struct's fields, embedded ones too. With only, just the fields of that type.
func jsonNames(t, only reflect.Type) (names []string) {
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && (only == nil || f.Type == only) {
			names = append(names, name)
		}
	}
	return names
}
