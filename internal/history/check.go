package history

import (
	"cmp"
	"slices"
)

// Starts runs every check that applies to the starts of tenants with one rate, whatever else
// happens.
func Starts(h History, r Rule) []Violation {
	return sorted(Spacing(h, r), Windows(h, r), Slots(h, r), OnTime(h, r), Attempts(h))
}

// Accounts runs every check that applies to jobs once all should have come to an end.
func Accounts(h History) []Violation {
	return sorted(Lost(h), Unexpected(h), Duplicated(h))
}

// sorted joins violations, in the order in which they happened.
func sorted(lists ...[]Violation) []Violation {
	out := slices.Concat(lists...)
	slices.SortStableFunc(out, func(a, b Violation) int { return cmp.Compare(a.At, b.At) })
	return out
}
