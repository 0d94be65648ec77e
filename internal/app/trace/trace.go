// Package trace plays calls at given instants against an algorithm of package buckets and records
// each answer: the decision table of a textbook, made by the code that really decides.
//
// The clock is the caller's, so a trace takes no time and always comes out the same; memory and
// Redis answer alike.
package trace

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/jobshaper/jobshaper/buckets"
)

// Call is one request: when, and what it costs.
type Call struct {
	At int64 // µs
	N  int64
}

var callRE = regexp.MustCompile(`^([0-9]+)(?:\.([0-9]+))?(?::(-?[0-9]+))?$`)

// ParseCall reads AT or AT:COST: seconds in decimals, exact to the µs, and a cost of 0 or more, 1
// if none is given. Its error says what would be right.
func ParseCall(text string) (Call, error) {
	m := callRE.FindStringSubmatch(text)
	if m == nil {
		return Call{}, errors.New("want AT or AT:COST, seconds from 0 on and a whole number, such as 0.5 or 0.5:2")
	}
	decimals := strings.TrimRight(m[2], "0")
	if len(decimals) > 6 {
		return Call{}, errors.New("want at most 6 decimals, since µs are the smallest step")
	}
	at, err := strconv.ParseInt(m[1]+decimals+"000000"[len(decimals):], 10, 64)
	if err != nil || at > buckets.MaxInstant {
		return Call{}, fmt.Errorf("want at most %s seconds", Seconds(buckets.MaxInstant))
	}
	c := Call{At: at, N: 1}
	if m[3] != "" {
		if c.N, err = strconv.ParseInt(m[3], 10, 64); err != nil || c.N < 0 {
			return Call{}, errors.New("want a cost of 0 (a look that takes nothing) or more, below 2^63")
		}
	}
	return c, nil
}

// Seconds writes µs as ParseCall reads them: "0.5".
func Seconds(us int64) string {
	text := fmt.Sprintf("%d.%06d", us/1_000_000, us%1_000_000)
	return strings.TrimRight(strings.TrimRight(text, "0"), ".")
}

// Clock is the clock that a traced limiter is given. It shows the instant of the current call.
type Clock struct{ now int64 }

// Micros returns the instant.
func (c *Clock) Micros() int64 { return c.now }

// Row is a limiter's answer to one call.
type Row struct {
	Call
	buckets.Decision
}

// Limiter makes the calls in turn, all for one key, and leaves nothing of it behind. The limiter
// must use the clock.
func Limiter(ctx context.Context, l buckets.Limiter, clock *Clock, calls []Call) (rows []Row, err error) {
	const key = "trace"
	defer func() { err = errors.Join(err, l.Reset(context.WithoutCancel(ctx), key)) }()
	for _, c := range calls {
		clock.now = c.At
		d, err := l.AllowN(ctx, key, c.N)
		if err != nil && !errors.Is(err, buckets.ErrTooLarge) { // which is an answer here: never
			return nil, err
		}
		rows = append(rows, Row{c, d})
	}
	return rows, nil
}
