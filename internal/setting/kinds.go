package setting

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jobshaper/jobshaper/buckets"
)

// kind is what all values with the same kind, range and default share.
type kind[T comparable] struct {
	def    T
	span   string // see value.Range
	want   string // what Check returns; empty = the same as span
	form   string // see value.Form
	lua    string // see value.Lua
	fits   func(T) bool
	parse  func(string) (v T, want string)
	text   func(T) string
	keep   func(T) [2]string
	recall func([2]string) T
}

// row is the Row of the field at.
func row[S any, T comparable](name, key, meaning string, at func(*S) *T, k kind[T]) Row[S] {
	return Row[S]{name, key, meaning, func(s *S) value { return bound[T]{at(s), &k} }}
}

// bound implements value.
type bound[T comparable] struct {
	p *T
	k *kind[T]
}

func (b bound[T]) Pointer() any  { return b.p }
func (b bound[T]) Unset()        { *b.p = *new(T) }
func (b bound[T]) IsSet() bool   { return *b.p != *new(T) }
func (b bound[T]) Text() string  { return b.k.text(*b.p) }
func (b bound[T]) Range() string { return b.k.span }
func (b bound[T]) Form() string  { return b.k.form }
func (b bound[T]) Lua() string   { return b.k.lua }

func (b bound[T]) Parse(text string) string {
	v, want := b.k.parse(text)
	if want == "" {
		*b.p = v
	}
	return want
}

func (b bound[T]) Check() string {
	if b.IsSet() && !b.k.fits(*b.p) {
		return cmp.Or(b.k.want, b.k.span)
	}
	return ""
}

func (b bound[T]) Default() string {
	switch {
	case b.k.def != *new(T):
		return trimZeros.Replace(b.k.text(b.k.def))
	case b.k.fits(b.k.def):
		return ""
	}
	return "none"
}

func (b bound[T]) copy(from value)    { *b.p = *from.(bound[T]).p }
func (b bound[T]) setDefault()        { *b.p = b.k.def }
func (b bound[T]) keep() [2]string    { return b.k.keep(*b.p) }
func (b bound[T]) recall(s [2]string) { *b.p = b.k.recall(s) }

// Rate is a rate; buckets.Rate says what it may be. def is zero where there is no default.
func Rate[S any](name, key, meaning string, at func(*S) *buckets.Rate, def buckets.Rate) Row[S] {
	const want = "events per duration, at least 1, such as 10/s, 600/m or 1/90s (to stop a queue, pause it)"
	lua := "is_rate(v)"
	if def.IsZero() {
		lua = "v == '' or is_rate(v)"
	}
	return row(name, key, meaning, at, kind[buckets.Rate]{
		def: def, want: want, form: "`RATE` such as 10/s, 600/m or 1/90s", lua: lua,
		fits: func(r buckets.Rate) bool { return r.Validate() == nil },
		parse: func(s string) (buckets.Rate, string) {
			r, err := buckets.ParseRate(s)
			if err != nil {
				return r, want
			}
			return r, ""
		},
		text:   buckets.Rate.String,
		keep:   func(r buckets.Rate) [2]string { return [2]string{KeepRate(r)} },
		recall: func(s [2]string) buckets.Rate { return RecallRate(s[0]) },
	})
}

// KeepRate returns how Redis keeps a rate: the exact fraction, with its period in µs.
func KeepRate(r buckets.Rate) string { return fmt.Sprintf("%d/%d", r.Events, r.Period.Microseconds()) }

// RecallRate reads what KeepRate wrote.
func RecallRate(s string) buckets.Rate {
	events, period, ok := strings.Cut(s, "/")
	if !ok {
		return buckets.Rate{}
	}
	return buckets.Rate{Events: atoi(events), Period: time.Duration(atoi(period)) * time.Microsecond}
}

// Whole is a whole number; most may be math.MaxInt, and def 0 is no default.
func Whole[S any](name, key, meaning string, at func(*S) *int, least, most, def int) Row[S] {
	span := fmt.Sprintf("%d to %d", least, most)
	if most == math.MaxInt {
		span = fmt.Sprintf("at least %d", least)
	}
	return whole(name, key, meaning, at, least, most, def, span)
}

// WholeOrZero is a whole number from 1 to most, or a 0, which sets nothing; zero says what the 0
// means, and ends the range.
func WholeOrZero[S any](name, key, meaning string, at func(*S) *int, most int, zero string) Row[S] {
	return whole(name, key, meaning, at, 0, most, 0, fmt.Sprintf("1 to %d%s", most, zero))
}

// wholeRE is stricter than YAML, where 010 is 8 and 1_0 is 10.
var wholeRE = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)

func whole[S any](name, key, meaning string, at func(*S) *int, least, most, def int, span string) Row[S] {
	return row(name, key, meaning, at, kind[int]{
		def: def, span: span, form: "`N`",
		fits: func(n int) bool { return least <= n && n <= most },
		parse: func(s string) (int, string) {
			n, err := strconv.Atoi(s)
			switch {
			case !wholeRE.MatchString(s):
				return 0, "a whole number, " + span
			case err != nil || n < min(least, 1):
				return 0, span // beyond int, or a zero that would mean "not set"
			}
			return n, ""
		},
		text:   strconv.Itoa,
		keep:   func(n int) [2]string { return [2]string{strconv.Itoa(n)} },
		recall: func(s [2]string) int { return int(atoi(s[0])) },
	})
}

// Word is one of several words, of which the first is the default.
func Word[S any, T ~string](name, key, meaning string, at func(*S) *T, words ...T) Row[S] {
	span := Or(words)
	return row(name, key, meaning, at, kind[T]{
		def: words[0], span: span, form: "`WORD`, " + span, lua: oneOf(words),
		fits: func(w T) bool { return slices.Contains(words, w) },
		parse: func(s string) (T, string) {
			if s == "" {
				return "", span
			}
			return T(s), ""
		},
		text:   func(w T) string { return string(w) },
		keep:   func(w T) [2]string { return [2]string{string(w)} },
		recall: func(s [2]string) T { return T(s[0]) },
	})
}

// oneOf tells in Lua whether v is one of the words.
func oneOf[T ~string](words []T) string {
	var all []string
	for _, w := range words {
		all = append(all, fmt.Sprintf("v == '%s'", w))
	}
	return strings.Join(all, " or ")
}

// Or lists words for a reader: "a, b or c".
func Or[T ~string](words []T) string {
	text, between := "", ""
	for i, w := range words {
		text += between + string(w)
		between = ", "
		if i == len(words)-2 {
			between = " or "
		}
	}
	return text
}

// Duration is a duration that Redis keeps in whole units; most may be math.MaxInt64, and then any
// duration above 0 will do.
func Duration[S any](name, key, meaning string, at func(*S) *time.Duration, unit, least, most, def time.Duration) Row[S] {
	k := duration(unit, least, most, def)
	k.parse = func(s string) (time.Duration, string) { return parseDuration(s, k.span) }
	return row(name, key, meaning, at, k)
}

// DurationOrForever is a Duration, or "forever": a negative one, which Redis keeps as -1.
func DurationOrForever[S any](name, key, meaning string, at func(*S) *time.Duration, unit, least, most, def time.Duration) Row[S] {
	finite := duration(unit, least, most, def)
	k := finite
	k.span += ", or forever"
	k.form += " or forever"
	k.fits = func(d time.Duration) bool { return d < 0 || finite.fits(d) }
	k.parse = func(s string) (time.Duration, string) {
		if s == "forever" {
			return -1, ""
		}
		return parseDuration(s, k.span)
	}
	k.text = func(d time.Duration) string {
		if d < 0 {
			return "forever"
		}
		return d.String()
	}
	k.keep = func(d time.Duration) [2]string {
		if d < 0 {
			return [2]string{"-1"}
		}
		return finite.keep(d)
	}
	k.recall = func(s [2]string) time.Duration { return max(-1, finite.recall(s)) }
	return row(name, key, meaning, at, k)
}

// WantDuration is what a duration looks like.
const WantDuration = "a duration such as 30s, 1h30m or 2d"

func parseDuration(s, span string) (time.Duration, string) {
	d, err := buckets.ParseDuration(s)
	switch {
	case err != nil:
		return 0, WantDuration + ", " + span
	case d <= 0:
		return 0, span
	}
	return d, ""
}

func duration(unit, least, most, def time.Duration) kind[time.Duration] {
	span := brief(least) + " to " + brief(most)
	if most == math.MaxInt64 {
		span = "more than 0"
	}
	return kind[time.Duration]{
		def: def, span: span, form: "`DURATION`",
		fits:   func(d time.Duration) bool { return least <= d && d <= most },
		text:   time.Duration.String,
		keep:   func(d time.Duration) [2]string { return [2]string{units(d, unit)} },
		recall: func(s [2]string) time.Duration { return time.Duration(atoi(s[0])) * unit },
	}
}

// span is a Backoff's struct.
type span = struct{ Min, Max time.Duration }

// Backoff is MIN..MAX, which Redis keeps in two fields, in whole units.
func Backoff[S any, B interface {
	~span
	comparable
	fmt.Stringer
}](name, key, meaning string, at func(*S) *B, unit, least, most time.Duration, def B) Row[S] {
	want := fmt.Sprintf("MIN..MAX with %s ≤ MIN ≤ MAX ≤ %s", brief(least), brief(most))
	return row(name, key, meaning, at, kind[B]{
		def: def, span: want, form: "`MIN..MAX`",
		fits: func(b B) bool { return least <= span(b).Min && span(b).Min <= span(b).Max && span(b).Max <= most },
		parse: func(s string) (B, string) {
			from, to, _ := strings.Cut(s, "..")
			lo, err1 := buckets.ParseDuration(from)
			hi, err2 := buckets.ParseDuration(to)
			if err1 != nil || err2 != nil || lo <= 0 {
				return B{}, want
			}
			return B{lo, hi}, ""
		},
		text:   B.String,
		keep:   func(b B) [2]string { return [2]string{units(span(b).Min, unit), units(span(b).Max, unit)} },
		recall: func(s [2]string) B { return B{time.Duration(atoi(s[0])) * unit, time.Duration(atoi(s[1])) * unit} },
	})
}

// brief formats a duration as people write it: 30d, 5m.
func brief(d time.Duration) string {
	if d >= day && d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	return trimZeros.Replace(d.String())
}

const day = 24 * time.Hour

// trimZeros removes from the text of durations what nobody writes.
var trimZeros = strings.NewReplacer("h0m0s", "h", "m0s", "m")

func units(d, unit time.Duration) string { return strconv.FormatInt(int64(d/unit), 10) }

func atoi(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}
