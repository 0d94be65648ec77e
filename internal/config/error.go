package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/jobshaper/jobshaper/shaper"
)

// Error is one mistake in a config file. It wraps shaper.ErrInvalid and reads, for example:
//
//	shaper.yaml:7:24: downstreams.transcoder.defaults.depth: "0": want 1 to 10000000
type Error struct {
	File         string
	Line, Column int    // counted from 1; Column is 0 where the text is not YAML, and only the line is known
	Path         string // of the key, joined with dots; empty where the text is not YAML
	Problem      string // the value, unless it may be secret, and what would be right
}

func (e *Error) Error() string {
	at := fmt.Sprintf("%s:%d", e.File, e.Line)
	if e.Column > 0 {
		at += fmt.Sprintf(":%d", e.Column)
	}
	if e.Path == "" {
		return at + ": " + e.Problem
	}
	return at + ": " + e.Path + ": " + e.Problem
}

func (e *Error) Unwrap() error { return shaper.ErrInvalid }

// maxErrors is how many mistakes one call reports in full: a mistake that a
// file repeats for a thousand tenants must not fill the terminal.
const maxErrors = 20

// joinErrors returns the mistakes in the order of the file, nil for none.
func joinErrors(found []*Error) error {
	slices.SortStableFunc(found, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	var errs []error
	for i, e := range found {
		if i == maxErrors {
			errs = append(errs, fmt.Errorf("%s: and %d more", e.File, len(found)-maxErrors))
			break
		}
		errs = append(errs, e)
	}
	return errors.Join(errs...)
}
