package main

import (
	"errors"
	"strings"
)

// splitWords splits a command line into words as a POSIX shell does: at blanks, except those in
// single quotes, in double quotes or after a backslash. It does nothing else that a shell does: no
// variables, patterns, pipes or comments. What looks like one of those is passed on as text, since
// a placeholder's value may hold anything.
func splitWords(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	begun, quote := false, rune(0)
	escaped := false
	for _, r := range line {
		switch {
		case escaped:
			if quote == '"' && !strings.ContainsRune("\"\\$`\n", r) {
				word.WriteRune('\\') // between double quotes a backslash is text, except before these
			}
			if r != '\n' { // an escaped line end only continues the line
				word.WriteRune(r)
			}
			escaped = false
		case r == '\\' && quote != '\'':
			escaped, begun = true, true
		case quote != 0:
			if r == quote {
				quote = 0
			} else {
				word.WriteRune(r)
			}
		case r == '\'' || r == '"':
			quote, begun = r, true
		case strings.ContainsRune(" \t\n", r):
			if begun {
				words = append(words, word.String())
				word.Reset()
				begun = false
			}
		default:
			word.WriteRune(r)
			begun = true
		}
	}
	switch {
	case quote != 0:
		return nil, errors.New("a quote is not closed")
	case escaped:
		return nil, errors.New("nothing follows the last backslash")
	}
	if begun {
		words = append(words, word.String())
	}
	if len(words) == 0 {
		return nil, errors.New("want a command")
	}
	return words, nil
}
