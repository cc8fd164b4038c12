package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"errand/internal/programs"
	"errand/internal/typo"
	"errand/pkg/messages"
)

// maxBody is the maximum size read from a file or a pipe; servers accept less.
const maxBody = 64 << 20

// operationOf is the operation that is requested on subject.
func operationOf(subject string) (messages.Operation, error) {
	var subjects []string
	for _, op := range messages.Requests {
		if op.Requested() == subject {
			return op, nil
		}
		subjects = append(subjects, op.Requested())
	}
	hint := typo.DidYouMean(subject, subjects)
	if hint == "" { // an operation, perhaps
		hint = typo.DidYouMean(subject+".requested", subjects)
	}
	return "", &programs.Invalid{Variable: "SUBJECT", Problem: fmt.Sprintf("%q takes no requests%s Use one of %s", subject, cmp.Or(hint, "."), strings.Join(subjects, ", "))}
}

// body is the request: made from the fields, or the unchanged bytes of a file or of
// standard input. Operations without required fields may have an empty one.
func body(op messages.Operation, fields []string, file string, c console) ([]byte, error) {
	switch {
	case len(fields) > 0 && file != "":
		return nil, &programs.Invalid{Variable: "--field", Problem: "use either fields or --file, not both"}
	case len(fields) > 0:
		return object(op, fields)
	case file != "" && file != "-":
		f, err := os.Open(file)
		if err != nil {
			return nil, &programs.Invalid{Variable: "--file", Problem: err.Error()}
		}
		defer func() { _ = f.Close() }() // nothing was written
		return readAll(f, "--file")
	}
	if file == "-" || c.piped {
		data, err := readAll(c.in, "standard input")
		if err != nil || len(bytes.TrimSpace(data)) > 0 {
			return data, err
		}
	}
	if op == messages.Account || op == messages.Transactions {
		return []byte("{}"), nil
	}
	return nil, &programs.Invalid{Variable: "--field", Problem: "the request is empty: use --field name=value, --file FILE, or JSON on standard input"}
}

func readAll(r io.Reader, name string) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxBody+1))
	if err == nil && len(data) > maxBody {
		err = fmt.Errorf("is longer than %d MiB", maxBody>>20)
	}
	if err != nil {
		return nil, &programs.Invalid{Variable: name, Problem: err.Error()}
	}
	return data, nil
}

// object makes a request of name=value texts, in their order.
func object(op messages.Operation, fields []string) ([]byte, error) {
	var names []string
	texts := textsOf(op)
	b := []byte{'{'}
	for _, field := range fields {
		name, text, found := strings.Cut(field, "=")
		if !found || name == "" {
			return nil, &programs.Invalid{Variable: "--field", Problem: fmt.Sprintf("%q is not of the form name=value", field)}
		}
		if !utf8.ValidString(field) { // as JSON it would be another text
			return nil, &programs.Invalid{Variable: "--field", Problem: fmt.Sprintf("%s is not UTF-8: is the terminal or the script in another encoding?", strings.ToValidUTF8(name, "\uFFFD"))}
		}
		if slices.Contains(names, name) {
			return nil, &programs.Invalid{Variable: "--field", Problem: fmt.Sprintf("%s is given twice; write a list as %s='[…]'", name, name)}
		}
		if len(names) > 0 {
			b = append(b, ',')
		}
		names = append(names, name)
		b = append(append(append(b, literal(name)...), ':'), value(text, slices.Contains(texts, name))...)
	}
	return append(b, '}'), nil
}

// value is text as JSON: unchanged if it is a JSON string, and where the field is no text
// also if it is a number, boolean, array or object; otherwise a string. Digits with leading
// zeros are not a JSON number.
func value(text string, isText bool) []byte {
	if text != "null" && json.Valid([]byte(text)) && (!isText || strings.HasPrefix(strings.TrimSpace(text), `"`)) {
		return []byte(text)
	}
	return literal(text)
}

func literal(text string) []byte {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(text) // a string always encodes
	return bytes.TrimRight(b.Bytes(), "\n")
}
