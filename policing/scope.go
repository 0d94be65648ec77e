package policing

import (
	"fmt"
	"strings"
)

// Scope says which requests share a limit.
type Scope int

const (
	// PerTenant gives each tenant of each downstream a limit of its own. The zero value.
	PerTenant Scope = iota
	// PerDownstream gives each downstream one, which its tenants share.
	PerDownstream
	// Global is one limit for all.
	Global
)

var scopeNames = []string{PerTenant: "tenant", PerDownstream: "downstream", Global: "global"}

// String returns the scope as a rule's text has it: "tenant", "downstream", "global".
func (s Scope) String() string { return nameOf(scopeNames, int(s)) }

// ParseScope reads what String writes.
func ParseScope(text string) (Scope, error) {
	i, err := indexOf(scopeNames, "per", text)
	return Scope(i), err
}

// Subject is who asks: a tenant that offers something to a downstream. Any text will do,
// also none: all who come without a name then count as one.
type Subject struct{ Downstream, Tenant string }

// key returns the subject's key under the scope. A slash stands only between the two
// names, so no two subjects of a scope share a key.
func (s Scope) key(subject Subject) string {
	switch s {
	case Global:
		return "all"
	case PerDownstream:
		return escapeSlash.Replace(subject.Downstream) + "/"
	default:
		return escapeSlash.Replace(subject.Downstream) + "/" + subject.Tenant
	}
}

var escapeSlash = strings.NewReplacer("%", "%25", "/", "%2F")

// nameOf and indexOf turn a small enumeration into text and back.
func nameOf(names []string, i int) string {
	if i < 0 || i >= len(names) {
		return fmt.Sprintf("invalid(%d)", i)
	}
	return names[i]
}

func indexOf(names []string, field, text string) (int, error) {
	for i, name := range names {
		if name == text {
			return i, nil
		}
	}
	return 0, fmt.Errorf("%w: %s=%q: want %s", ErrRule, field, text, strings.Join(names, " or "))
}
