package redisurl

import (
	"regexp"
	"strings"
)

var secretOption = regexp.MustCompile(`(?i)([?&][^=&]*(?:password|secret|token)[^=&]*=)[^&]*`)

// Redact returns the URL fit for a message: what may be a password is "***". It
// works on any text, however broken, and hides too much rather than too little: with
// an @ anywhere, all before the last @ except the user's name.
func Redact(raw string) string {
	head, rest := "", raw
	if scheme, after, found := strings.Cut(raw, "://"); found {
		head, rest = scheme+"://", after
	}
	if at := strings.LastIndex(rest, "@"); at >= 0 {
		user, _, _ := strings.Cut(rest[:at], ":")
		if user == rest[:at] || strings.ContainsAny(user, "/?#@") {
			rest = "***" + rest[at:] // no colon: it may be the password
		} else {
			rest = user + ":***" + rest[at:]
		}
	}
	return head + secretOption.ReplaceAllString(rest, "${1}***")
}
