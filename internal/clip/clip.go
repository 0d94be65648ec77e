// Package clip shortens text for people.
package clip

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Value shortens a name or a value for a message, and says then how long it was.
func Value(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return fmt.Sprintf("%s (%d bytes)", Bytes(s, most), len(s))
}

// Bytes keeps the beginning of s, whole characters of at most n bytes, and the ellipsis.
func Bytes(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

// Cell shortens a text for a table: to its first line, and n characters of it.
func Cell(s string, n int) string {
	s, _, _ = strings.Cut(s, "\n")
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}
