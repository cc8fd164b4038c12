// Package typo finds what was meant by a mistyped name.
package typo

import "strings"

// DidYouMean asks for the names that are nearest to a mistyped one, of which up to a third may be wrong; "" without such a name.
func DidYouMean(name string, names []string) string {
	var list []string
	least := max(2, len(name)/3)
	for _, candidate := range names {
		switch d := Distance(strings.ToLower(name), candidate); {
		case d < least:
			least, list = d, []string{candidate}
		case d == least:
			list = append(list, candidate)
		}
	}
	if list == nil {
		return ""
	}
	return ": did you mean " + strings.Join(list, " or ") + "?"
}

// Distance is how many letters must be changed, added, removed or swapped with their neighbour to make b of a.
func Distance(a, b string) int {
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
