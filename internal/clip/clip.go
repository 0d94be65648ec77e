// Package clip shortens text for people.
package clip

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Value shortens a name or a value for a message, and then says how long it was.
func Value(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return fmt.Sprintf("%s (%d bytes)", Bytes(s, most), len(s))
}

// Bytes shortens s to whole characters of at most n bytes, and an ellipsis.
func Bytes(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

// Cell shortens a text for a table: to its first line, and at most n characters of that.
func Cell(s string, n int) string {
	s, _, _ = strings.Cut(s, "\n")
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}
