package shaper

import (
	"encoding/base32"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/jobshaper/jobshaper/internal/clip"
	"github.com/jobshaper/jobshaper/internal/queue"
)

// DefaultName is the name of the downstream or the tenant where none is given.
const DefaultName = "default"

// ValidName returns nil if value may name a downstream, a tenant or a job, and a *FieldError for
// field otherwise. A name ends up inside Redis keys, hash tags, logs and metric labels, so it is
// checked at every door.
func ValidName(field, value string) error {
	if queue.IsName(value) {
		return nil
	}
	return &FieldError{Field: field, Value: clip.Value(value),
		Want: "1 to 64 of letters, digits, '.', '_' and '-', the first a letter or digit"}
}

var ids = base32.HexEncoding.WithPadding(base32.NoPadding)

// NewID returns a fresh job id: a version 7 UUID in 26 lower-case letters and digits, so later ids
// sort after earlier ones.
func NewID() string {
	u, err := uuid.NewV7()
	if err != nil {
		panic(err) // the system has no randomness
	}
	return strings.ToLower(ids.EncodeToString(u[:]))
}

// validType checks a job's type: what a ServeMux routes by, such as "video:transcode".
func validType(value string) error {
	good := value != "" && len(value) <= 128
	for i := range len(value) {
		good = good && '!' <= value[i] && value[i] <= '~'
	}
	if good {
		return nil
	}
	return &FieldError{Field: "type", Value: clip.Value(value), Want: "1 to 128 printable ASCII characters without blanks"}
}

// validHeaders checks a job's headers: they are kept as JSON, whose text is UTF-8.
func validHeaders(headers map[string]string) error {
	for name, value := range headers {
		if !utf8.ValidString(name) || !utf8.ValidString(value) {
			return &FieldError{Field: "headers", Value: clip.Value(name), Want: "a name and a value in UTF-8; other bytes can be sent in base64"}
		}
	}
	return nil
}
