package policing

import "net/http"

// What a queue needs that asks the rules itself, inside its own script.

// Named returns the rules as a Policer would have them, each with its name, or an error
// that says which of them is wrong.
func Named(rules []Rule) ([]Rule, error) { return named(rules) }

// Judge returns the verdict that follows from rulings, which it keeps.
func Judge(rulings []Ruling) Verdict {
	v := Verdict{Rulings: rulings}
	v.settle()
	return v
}

// WriteFields tells a client where it stands: X-RateLimit-Limit, -Remaining and -Reset, and
// with ietf the fields RateLimit-Policy and RateLimit. Where no rule was asked it writes
// nothing.
func WriteFields(h http.Header, v Verdict, ietf bool) { writeFields(h, v, ietf) }
