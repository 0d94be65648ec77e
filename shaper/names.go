package shaper

import (
	"fmt"
	"regexp"
)

// DefaultName is the downstream and the tenant where none is named.
const DefaultName = "default"

var nameRE = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// ValidName returns nil where value may name a downstream, a tenant or a job, and
// otherwise a *FieldError for field. A name ends up inside Redis keys, hash tags, logs and
// metric labels, so it is checked at every door.
func ValidName(field, value string) error {
	if nameRE.MatchString(value) {
		return nil
	}
	return &FieldError{Field: field, Value: clip(value, 80),
		Want: "1 to 64 of letters, digits, '.', '_' and '-', the first a letter or digit"}
}

var typeRE = regexp.MustCompile(`^[!-~]{1,128}$`)

// validType checks a job's type: what a ServeMux routes by, such as "video:transcode".
func validType(value string) error {
	if typeRE.MatchString(value) {
		return nil
	}
	return &FieldError{Field: "type", Value: clip(value, 80), Want: "1 to 128 printable ASCII characters without blanks"}
}

// clip shortens s for a message.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return fmt.Sprintf("%s… (%d bytes)", s[:n], len(s))
}
