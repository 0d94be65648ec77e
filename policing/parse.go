package policing

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/jobshaper/jobshaper/buckets"
)

// ParseRule reads a rule:
//
//	token_bucket 10/s burst 100
//	leaky_bucket 10/s depth 20
//	fixed_window 1000/d name=daily per=downstream
//	sliding_log 3/60s on_failure=closed
//	sliding_counter 100/m cost=5
//	heavy share=20% then token_bucket 10/s burst 10
//
// that is, an algorithm with its rate, for a bucket its capacity (see RuleOf for its
// default), and in any order name=, per=tenant|downstream|global, on_failure=open|closed|local
// and cost=. What is left out is the zero value of the Rule's field.
func ParseRule(text string) (Rule, error) {
	r, err := parseRule(strings.Fields(text))
	if err != nil {
		return Rule{}, fmt.Errorf("rule %q: %w", text, err)
	}
	return r, nil
}

func parseRule(words []string) (Rule, error) {
	var heavy Share
	if len(words) > 0 && words[0] == "heavy" {
		var err error
		if heavy, err = parseHeavy(words); err != nil {
			return Rule{}, err
		}
		words = words[3:]
	}
	if len(words) < 2 {
		return Rule{}, fmt.Errorf("%w: want an algorithm and a rate, such as token_bucket 10/s", ErrRule)
	}
	rate, err := buckets.ParseRate(words[1])
	if err != nil {
		return Rule{}, err
	}
	burst, options, err := parseBurst(words[0], words[2:])
	if err != nil {
		return Rule{}, err
	}
	r, err := RuleOf(words[0], rate, burst)
	if err != nil {
		return Rule{}, err
	}
	r.Heavy = heavy
	seen := map[string]bool{}
	for _, option := range options {
		key, value, ok := strings.Cut(option, "=")
		if !ok || seen[key] {
			return Rule{}, fmt.Errorf("%w: %q: want name=, per=, on_failure= or cost=, each once", ErrRule, option)
		}
		seen[key] = true
		if err := r.setOption(key, value); err != nil {
			return Rule{}, err
		}
	}
	return r, r.Validate()
}

// parseHeavy reads "heavy share=20% then".
func parseHeavy(words []string) (Share, error) {
	if len(words) >= 3 && words[2] == "then" {
		if text, ok := strings.CutPrefix(words[1], "share="); ok {
			return parseShare(text)
		}
	}
	return 0, fmt.Errorf("%w: want heavy share=20%% then, and a rule", ErrRule)
}

// burstWords are what the capacity is called.
var burstWords = map[string]string{"token_bucket": "burst", "leaky_bucket": "depth"}

// parseBurst reads "burst 100" or "depth 20" if it is there, and returns what follows.
func parseBurst(algorithm string, words []string) (int64, []string, error) {
	want := burstWords[algorithm]
	if len(words) == 0 || strings.Contains(words[0], "=") {
		return 0, words, nil
	}
	if words[0] != want || len(words) < 2 {
		return 0, nil, fmt.Errorf("%w: %q after %s: want burst N (token_bucket), depth N (leaky_bucket) or an option such as name=", ErrRule, words[0], algorithm)
	}
	n, err := strconv.ParseInt(words[1], 10, 64)
	if err != nil || n < 1 {
		return 0, nil, fmt.Errorf("%w: %s %q: want a whole number, at least 1", ErrRule, want, words[1])
	}
	return n, words[2:], nil
}

func (r *Rule) setOption(key, value string) (err error) {
	switch key {
	case "name":
		r.Name = value
		if value == "" {
			err = fmt.Errorf("%w: name= is empty", ErrRule)
		}
	case "per":
		r.Per, err = parseScope(value)
	case "on_failure":
		r.OnFailure, err = parseFailurePolicy(value)
	case "cost":
		r.Cost, err = strconv.ParseInt(value, 10, 64)
		if err != nil || r.Cost < 1 {
			err = fmt.Errorf("%w: cost=%s: want a whole number, 1 to %d", ErrRule, value, MaxCost)
		}
	default:
		err = fmt.Errorf("%w: option %s=: want name=, per=, on_failure= or cost=", ErrRule, key)
	}
	return err
}

// String writes the rule as ParseRule reads it. What is at its default is left out.
func (r Rule) String() string {
	var b strings.Builder
	if r.Heavy != 0 {
		fmt.Fprintf(&b, "heavy share=%v then ", r.Heavy)
	}
	algorithm := strings.ReplaceAll(string(r.Params.Algorithm), "-", "_")
	b.WriteString(algorithm + " ")
	if word, bucket := burstWords[algorithm]; bucket {
		fmt.Fprintf(&b, "%v %s %d", r.Params.Rate, word, r.Params.Limit)
	} else {
		b.WriteString(buckets.Rate{Events: r.Params.Limit, Period: r.Params.Window}.String())
	}
	if r.Name != "" {
		b.WriteString(" name=" + r.Name)
	}
	if r.Per != PerTenant {
		b.WriteString(" per=" + r.Per.String())
	}
	if r.OnFailure != FailOpen {
		b.WriteString(" on_failure=" + r.OnFailure.String())
	}
	if r.Cost != 0 {
		fmt.Fprintf(&b, " cost=%d", r.Cost)
	}
	return b.String()
}

// MarshalText implements encoding.TextMarshaler.
func (r Rule) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *Rule) UnmarshalText(text []byte) error {
	parsed, err := ParseRule(string(text))
	if err == nil {
		*r = parsed
	}
	return err
}

// Share is a part of a whole, in millionths, so that what was written is what is kept.
type Share int64

// Percent is a hundredth of the whole: 20*Percent is a fifth.
const Percent Share = 10_000

const whole = 100 * Percent

// String writes the share in per cent: "20%", "0.25%".
func (s Share) String() string {
	text := fmt.Sprintf("%d.%04d", s/Percent, s%Percent)
	return strings.TrimRight(strings.TrimRight(text, "0"), ".") + "%"
}

// parseShare reads a share in per cent, with at most four decimals: "20%", "0.25%". It
// must be more than nothing and less than all.
func parseShare(text string) (Share, error) {
	bad := fmt.Errorf("%w: share %q: want more than 0%% and less than 100%%, with at most 4 decimals, such as 20%%", ErrRule, text)
	digits, ok := strings.CutSuffix(text, "%")
	units, decimals, _ := strings.Cut(digits, ".")
	if !ok || len(units) > 2 || len(decimals) > 4 || strings.Trim(units+decimals, "0123456789") != "" {
		return 0, bad
	}
	n, err := strconv.ParseInt("0"+units+decimals+"0000"[len(decimals):], 10, 64)
	if err != nil || n == 0 {
		return 0, bad
	}
	return Share(n), nil
}

// of reports whether part is more than the share of all. Both are below 2^40.
func (s Share) of(part, all uint64) bool {
	return part*uint64(whole) > all*uint64(s)
}
