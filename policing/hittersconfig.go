package policing

import (
	"cmp"
	"fmt"
	"time"

	"github.com/jobshaper/jobshaper/buckets"
)

// HittersConfig is what Hitters are made with. The zero value is usable.
type HittersConfig struct {
	// Keys is how many keys are listed; 0 means 32, at most 1024.
	Keys int

	// Width and Rows are the size of the sketch; 0 means 2048, a power of two up to 2^20,
	// and 4, at most 16. It takes 8 × Width × Rows bytes.
	Width, Rows int

	// HalfLife is after how long a request counts half; 0 means a minute.
	HalfLife time.Duration

	// MinOffers is how many offers there must be (as they count now) before any key is
	// heavy: the first one to come has all of them. 0 means 100.
	MinOffers int

	// Clock returns the time in µs, for tests; nil means the process's own.
	Clock func() int64
}

// fill sets what is at its default, and returns an error that names the bad field.
func (c *HittersConfig) fill() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: hitters: "+format, append([]any{buckets.ErrParameter}, args...)...)
	}
	c.Keys = cmp.Or(c.Keys, 32)
	c.Width = cmp.Or(c.Width, 2048)
	c.Rows = cmp.Or(c.Rows, 4)
	c.MinOffers = cmp.Or(c.MinOffers, 100)
	c.HalfLife = cmp.Or(c.HalfLife, time.Minute)
	switch {
	case c.Keys < 1 || c.Keys > 1024:
		return bad("Keys %d: want 1 to 1024", c.Keys)
	case c.Width < 16 || c.Width > 1<<20 || c.Width&(c.Width-1) != 0:
		return bad("Width %d: want a power of two, 16 to %d", c.Width, 1<<20)
	case c.Rows < 1 || c.Rows > 16:
		return bad("Rows %d: want 1 to 16", c.Rows)
	case c.HalfLife < time.Millisecond:
		return bad("HalfLife %v: want at least 1ms", c.HalfLife)
	case c.MinOffers < 1:
		return bad("MinOffers %d: want at least 1", c.MinOffers)
	}
	return nil
}
