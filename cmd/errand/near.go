package main

import (
	"maps"
	"reflect"
	"slices"
	"strings"

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
				name, names = nested, jsonNames(reflect.TypeFor[messages.ObjectRef]())
			} else if rule != notKnown {
				continue
			}
			b.WriteString(didYouMean(name, names))
		}
	}
	return b.String()
}

// didYouMean is a question for the names that are near to a mistyped one, "" if none is.
func didYouMean(name string, names []string) string {
	if list := near(name, names); len(list) > 0 {
		return ": did you mean " + strings.Join(list, " or ") + "?"
	}
	return ""
}

// near are the names that are nearest to a mistyped one: up to a third of it may be wrong.
func near(name string, names []string) (list []string) {
	least := max(2, len(name)/3)
	for _, candidate := range names {
		switch d := distance(strings.ToLower(name), candidate); {
		case d < least:
			least, list = d, []string{candidate}
		case d == least:
			list = append(list, candidate)
		}
	}
	return list
}

// distance is how many letters must be changed, added, removed or swapped with their
// neighbour to make b of a.
func distance(a, b string) int {
	var before []int
	last := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row := append(make([]int, 0, len(b)+1), i+1)
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			d := min(last[j]+cost, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				d = min(d, before[j-1]+1)
			}
			row = append(row, d)
		}
		before, last = last, row
	}
	return last[len(b)]
}

// fieldsOf are the names of the fields that a request may have.
func fieldsOf(op messages.Operation) []string {
	return jsonNames(map[messages.Operation]reflect.Type{
		messages.Enroll:       reflect.TypeFor[messages.EnrollRequest](),
		messages.Transactions: reflect.TypeFor[messages.TransactionsRequest](),
		messages.Send:         reflect.TypeFor[messages.SendRequest](),
		messages.Account:      reflect.TypeFor[messages.AccountRequest](),
	}[op])
}

// jsonNames are the names of a struct's fields in JSON, with those of what it embeds.
func jsonNames(t reflect.Type) (names []string) {
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			names = append(names, name)
		}
	}
	return names
}
