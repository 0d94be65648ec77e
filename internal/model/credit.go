package model

import "time"

const floor = 100 // tickets that may be out in any case

// span is a quarter of the time that a ticket has, in µs.
func span(ttl time.Duration) int64 { return max(1, ttl.Microseconds()/4) }

// look is after how many µs a scheduler looks again while no more may be out.
func look(ttl time.Duration) int64 { return max(1, ttl.Microseconds()/100) }

// credited is how many tickets may be out: twice those that came to the gate in the last span or
// so, and a floor in any case. Then tickets take half of their time at most while the gate is as
// quick as it was. What came before fades. Of the tickets that were out after the last release,
// those that are not out any more came meanwhile.
func (d *Downstream) credited(ttl time.Duration) int64 {
	whole, passed := span(ttl), d.Now-d.LastRelease
	came := max(0, d.Sent-int64(d.Out.Len()))
	d.Pace -= d.Pace * min(passed, whole) / whole
	d.Pace += 1000 * came * whole / max(passed, whole)
	return max(floor, d.Pace/500)
}

// creditLeft is how many more may go out. Where none may, one does if none did since the last look:
// those that are out may all be lost.
func (d *Downstream) creditLeft(credit int64, ttl time.Duration) int64 {
	left := credit - int64(d.Out.Len())
	switch {
	case left > 0:
		return left
	case d.Now-(d.Out.last().At-ttl.Microseconds()) < look(ttl):
		return 0
	}
	return 1
}
