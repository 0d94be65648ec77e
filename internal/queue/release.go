package queue

import (
	"context"
	"time"
)

// Released is what a call of a scheduler released, and brought back.
type Released struct {
	Tickets []Ticket
	Wait    time.Duration // until something may leave; negative = nothing is filed
	More    bool          // there is work now, which was too much for one call

	// Jobs whose workers fell silent, so that they run again: those that may have taken their worker
	// down, or one beside them did; those that were alone to blame; and of those the ones that did it
	// too often, and are dead.
	Suspects, Blamed, Dead int
}

// Release asks for up to limit tickets, which must come to the gate within ttl. trip is the caller's
// round trip to Redis. With tidy, tenants that were idle for long are forgotten too.
func (q Queue) Release(ctx context.Context, limit int, ttl time.Duration, tidy bool, trip time.Duration) (Released, error) {
	v, err := q.Run(ctx, ReleaseScript, "release", limit, Micros(ttl), Flag(tidy), Micros(trip))
	if err != nil {
		return Released{}, err
	}
	return ReadReleased(v), nil
}

// ReadReleased reads the reply of lua/release.lua.
func ReadReleased(v any) (l Released) {
	r := ReplyOf(v)
	l.Wait, l.More = r.Micros(), r.Int() == 1
	l.Suspects, l.Blamed, l.Dead = int(r.Int()), int(r.Int()), int(r.Int())
	for r.More() {
		l.Tickets = append(l.Tickets, Ticket{Tenant: r.Str(), ID: r.Str(), Release: r.Int()})
	}
	return l
}
