package cliutil

import "fmt"

// DidYouMean is the end of a message that names the candidate nearest to what was
// typed, or nothing where none is near.
func DidYouMean(typed string, candidates []string) string {
	best, least := "", 0
	for _, candidate := range candidates {
		if d := distance(typed, candidate); best == "" || d < least {
			best, least = candidate, d
		}
	}
	// One slip in a short word, two in a longer one: beyond that it is a guess.
	limit := 1
	if len(typed) > 4 {
		limit = 2
	}
	if best == "" || least > limit {
		return ""
	}
	return fmt.Sprintf(": did you mean %s?", best)
}

// distance counts the slips between two words: letters left out, put in,
// exchanged, or swapped with their neighbour (the optimal string alignment
// distance).
func distance(a, b string) int {
	d := make([][]int, len(a)+1)
	for i := range d {
		d[i] = make([]int, len(b)+1)
		d[i][0] = i
	}
	for j := range d[0] {
		d[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			differ := 1
			if a[i-1] == b[j-1] {
				differ = 0
			}
			d[i][j] = min(d[i-1][j]+1, d[i][j-1]+1, d[i-1][j-1]+differ)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d[i][j] = min(d[i][j], d[i-2][j-2]+1)
			}
		}
	}
	return d[len(a)][len(b)]
}
