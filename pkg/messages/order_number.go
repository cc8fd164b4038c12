package messages

import "strings"

// OrderKey is the same for every spelling of an order number: a service that stores one may change case and spaces.
func OrderKey(order string) string { return strings.ToLower(strings.Join(strings.Fields(order), "")) }

// SameOrder reports whether two order numbers are the same. An empty one is the same as no other.
func SameOrder(a, b string) bool {
	key := OrderKey(a)
	return key != "" && key == OrderKey(b)
}
