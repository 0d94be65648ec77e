package cliutil

import (
	"strings"
	"unicode"
)

// Printable makes text from others (payloads, results, errors, what Redis holds) fit for a
// terminal: what a terminal would obey rather than print, such as escape sequences, becomes U+FFFD,
// and so do bytes that are not UTF-8. Line ends and tabs stay.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, strings.ToValidUTF8(s, string(unicode.ReplacementChar)))
}
