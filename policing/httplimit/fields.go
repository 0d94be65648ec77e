package httplimit

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/policing"
)

// WriteFields tells a client where it stands: it sets X-RateLimit-Limit, -Remaining and -Reset, and
// with ietf the fields RateLimit-Policy and RateLimit. Rules that were not asked have nothing to
// tell; if none was asked, it writes nothing. Middleware calls it; services that themselves answer
// what the rules of a queue said (see shaper.Result) call it directly.
func WriteFields(h http.Header, v policing.Verdict, ietf bool) {
	least := tightest(v)
	if least == nil {
		return
	}
	h.Set("X-RateLimit-Limit", number(least.Limit))
	h.Set("X-RateLimit-Remaining", number(least.Remaining))
	h.Set("X-RateLimit-Reset", seconds(least.ResetAfter))
	if !ietf {
		return
	}
	var policies, states []string
	for _, r := range v.Rulings {
		if !r.Asked {
			continue
		}
		name := quoted(r.Rule.Name)
		q, w := quota(r.Rule.Params)
		policies = append(policies, name+";q="+number(q)+";w="+seconds(max(w, 1)))
		states = append(states, name+";r="+number(r.Remaining)+";t="+seconds(r.ResetAfter))
	}
	h.Set("RateLimit-Policy", strings.Join(policies, ", "))
	h.Set("RateLimit", strings.Join(states, ", "))
}

// tightest returns the ruling that a client should know of: the one that refused, or the
// one with the least left; nil when no rule was asked.
func tightest(v policing.Verdict) *policing.Ruling {
	var best *policing.Ruling
	for i := range v.Rulings {
		r := &v.Rulings[i]
		switch {
		case !r.Asked:
		case !v.Allowed && r.Rule.Name == v.Refused:
			return r
		case best == nil || r.Remaining < best.Remaining:
			best = r
		}
	}
	return best
}

// maxInteger is the largest integer that a structured field holds (RFC 9651, 3.3.1).
const maxInteger = 999_999_999_999_999

func number(n int64) string { return strconv.FormatInt(min(max(n, 0), maxInteger), 10) }

// seconds rounds up to whole seconds.
func seconds(d time.Duration) string { return number(ceil(d, time.Second)) }

// ceil returns how many units d is, rounded up.
func ceil(d, unit time.Duration) int64 {
	n := int64(d / unit)
	if d%unit > 0 {
		n++
	}
	return n
}

// quoted writes a string of a structured field (RFC 9651, 3.3.3). Names of rules need no
// escape; what a field cannot hold is left out all the same.
func quoted(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c >= 0x20 && c < 0x7f:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// quota returns how much passes in how long: a window's limit and length, a bucket's
// capacity and the time it takes to fill.
func quota(s buckets.Params) (limit int64, in time.Duration) {
	if s.Window > 0 {
		return s.Limit, s.Window
	}
	if s.Rate.Events <= 0 {
		return s.Limit, 0
	}
	full := float64(s.Limit) / float64(s.Rate.Events) * float64(s.Rate.Period)
	return s.Limit, time.Duration(min(full, float64(buckets.MaxSpan)))
}
