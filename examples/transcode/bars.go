package main

import (
	"strings"
	"time"
)

// bin is how much time a column of a row of bars stands for, and how often the picture is drawn.
const bin = 100 * time.Millisecond

var levels = []rune(" ▁▂▃▄▅▆▇█")

// bars draws how many of the instants fall into each of the last bins, one per column; the last bin
// contains now. Bins begin at phase, or a whole number of bins before or after it.
func bars(times []time.Time, phase, now time.Time, columns int) string {
	last := floorDiv(now.Sub(phase), bin)
	counts := make([]int, columns)
	for _, t := range times {
		if c := columns - 1 - (last - floorDiv(t.Sub(phase), bin)); c >= 0 && c < columns {
			counts[c]++
		}
	}
	var b strings.Builder
	for _, n := range counts {
		b.WriteRune(levels[min(n, len(levels)-1)])
	}
	return b.String()
}

// meter draws n of a total as a bar.
func meter(n, total, columns int) string {
	full := min((n*columns+total-1)/total, columns)
	return strings.Repeat("█", full) + strings.Repeat("░", columns-full)
}

// within returns how many of the instants are in [from, to).
func within(times []time.Time, from, to time.Time) int {
	n := 0
	for _, t := range times {
		if !t.Before(from) && t.Before(to) {
			n++
		}
	}
	return n
}

func floorDiv(d, by time.Duration) int {
	n := int(d / by)
	if d%by < 0 {
		n--
	}
	return n
}
