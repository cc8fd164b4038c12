package history

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"

	"errand/internal/wire"
	"errand/pkg/messages"
)

// Abridge makes a body smaller that is larger than the servers take: about half of
// what a reader can do without is left out, and abridged is set. Counts stay, and so
// does an enrollment's url. It reports false when there is nothing more to leave out.
func Abridge(body messages.Body) (smaller bool) {
	switch b := body.(type) {
	case *messages.EnrollSucceeded:
		b.Enrollment, smaller = lighter(b.Enrollment, "url")
	case *messages.EnrollUncertain:
		b.Evidence, smaller = half(b.Evidence)
	case *messages.EnrollResolved:
		b.Evidence, smaller = half(b.Evidence)
	case *messages.TransactionsPage:
		b.Records, smaller = half(b.Records)
	case *messages.AccountReported:
		b.Account, smaller = lighter(b.Account, "")
	case *messages.FailedBody:
		b.Fields, smaller = fewer(b.Fields)
	case *messages.DeliveryBody:
		b.Entry, smaller = lightest(b.Entry, "to")
	case *messages.TransactionBody:
		b.Transaction, smaller = lightest(b.Transaction, "id")
	case *messages.CallbackBody:
		if smaller = b.Body != ""; smaller {
			b.Body, b.Encoding = "", messages.CallbackWithheld
		}
	case *messages.SendStarted:
		b.Suppressed, smaller = unexplained(b.Suppressed)
	case *messages.BatchBody:
		b.Suppressed, smaller = unexplained(b.Suppressed)
	case *messages.SendOutcome:
		var unsettled, invalid, fields bool
		b.Unsettled, unsettled = half(b.Unsettled)
		b.Invalid, invalid = half(b.Invalid[:min(len(b.Invalid), messages.ListedInvalid)])
		b.Fields, fields = fewer(b.Fields)
		smaller = unsettled || invalid || fields
	}
	if smaller {
		body.Head().Abridged = true
	}
	return smaller
}

// half returns the first half of a list, and whether that is less.
func half[T any](list []T) ([]T, bool) { return list[:len(list)/2], len(list) > 0 }

// unexplained leaves out why recipients are suppressed, but not which.
func unexplained(all []messages.Suppressed) (less []messages.Suppressed, smaller bool) {
	for _, s := range all {
		smaller = smaller || s.At != nil
		less = append(less, messages.Suppressed{Recipient: s.Recipient})
	}
	return less, smaller
}

// fewer returns half of the fields.
func fewer(fields map[string][]string) (map[string][]string, bool) {
	names, less := half(slices.Sorted(maps.Keys(fields)))
	out := make(map[string][]string, len(names))
	for _, name := range names {
		out[name] = fields[name]
	}
	return out, less
}

// lightest does what lighter does and, where nothing else is left, leaves out all.
func lightest(object json.RawMessage, keep string) (json.RawMessage, bool) {
	less, smaller := lighter(object, keep)
	if none := json.RawMessage("{}"); !smaller && len(object) > len(none) {
		return none, true
	}
	return less, smaller
}

// lighter leaves out the largest members of an object, but for the one named keep,
// until half of its bytes are gone.
func lighter(object json.RawMessage, keep string) (json.RawMessage, bool) {
	var members map[string]json.RawMessage
	_ = json.Unmarshal(object, &members) // anything but an object has no members
	names := slices.SortedFunc(maps.Keys(members), func(a, b string) int {
		return cmp.Compare(len(b)+len(members[b]), len(a)+len(members[a]))
	})
	gone := 0
	for _, name := range names {
		if name != keep && gone <= len(object)/2 {
			gone += len(name) + len(members[name])
			delete(members, name)
		}
	}
	less, err := wire.Marshal(members)
	if gone == 0 || err != nil {
		return object, false
	}
	return less, true
}
