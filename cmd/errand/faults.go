package main

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"errand/internal/typo"
	"errand/pkg/messages"
)

// notKnown is the rule that a field breaks which is none.
const notKnown = "is not a known field"

// faults are the rules that a request breaks, one a line, with the names that a mistyped
// field may have meant.
func faults(op messages.Operation, e *messages.Invalid) string {
	var b strings.Builder
	known := fieldsOf(op)
	for _, field := range slices.Sorted(maps.Keys(e.Fields)) {
		for _, rule := range e.Fields[field] {
			b.WriteString("\n  " + printable(field+" "+rule))
			name, names := field, known
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

// fieldsOf are the names of the fields that a request may have.
func fieldsOf(op messages.Operation) []string { return jsonNames(requests[op], nil) }

// textsOf are the names of those that are texts.
func textsOf(op messages.Operation) []string {
	return jsonNames(requests[op], reflect.TypeFor[string]())
}

var requests = map[messages.Operation]reflect.Type{
	messages.Enroll:       reflect.TypeFor[messages.EnrollRequest](),
	messages.Transactions: reflect.TypeFor[messages.TransactionsRequest](),
	messages.Send:         reflect.TypeFor[messages.SendRequest](),
	messages.Account:      reflect.TypeFor[messages.AccountRequest](),
}

// jsonNames are the names of a struct's fields in JSON, with those of what it embeds; only
// those of one type, unless that is nil.
func jsonNames(t, only reflect.Type) (names []string) {
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && (only == nil || f.Type == only) {
			names = append(names, name)
		}
	}
	return names
}
