package queue

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jobshaper/jobshaper/internal/coalesce"
)

// Ticket is what travels through asynq: "wake up for this tenant". It was released for one job, and
// starts the tenant's oldest job that is out. So it may be lost, doubled or late without harm, and
// jobs start in their order although tickets race.
type Ticket struct {
	Tenant  string
	ID      string // the job that it was released for
	Release int64  // how many tickets were released for that job, this one included
}

// String encodes the ticket, as ParseTicket reads it.
func (t Ticket) String() string { return fmt.Sprintf("%s %s %d", t.Tenant, t.ID, t.Release) }

// ParseTicket reads what String wrote.
func ParseTicket(s string) (Ticket, error) {
	f := strings.Split(s, " ")
	if len(f) == 3 && IsName(f[0]) && IsName(f[1]) {
		if n, err := strconv.ParseInt(f[2], 10, 64); err == nil {
			return Ticket{Tenant: f[0], ID: f[1], Release: n}, nil
		}
	}
	return Ticket{}, fmt.Errorf("ticket %.80q: want tenant, id and release number", s)
}

// Gate is the one door to a handler: it grants the slots of a downstream to workers, keeps their
// leases, and records how their jobs ended. All its calls may be repeated. It is safe for
// concurrent use.
type Gate struct {
	Trip    Trip  // for the owner to note what its calls take; Beat passes it on
	Warm    Delay // the same of what comes between a ticket and the call that asks for its slot
	q       Queue
	reports *coalesce.Group[[]any, reported]
}

// NewGate returns the Gate of a downstream.
func NewGate(q Queue) *Gate {
	g := &Gate{q: q}
	g.reports = coalesce.New(Batch, g.report)
	return g
}

// NewToken returns a fresh token for one start by a pool.
func NewToken(pool string) string { return pool + "." + nonce() }

// Grant is a start that was granted: the job, its slot, and the token that owns it.
type Grant struct {
	Ticket
	Token     string
	Ahead     time.Duration // from when the reply was made until the slot; negative if the slot had passed
	Slot      time.Time     // by Redis' clock
	Attempt   int           // which start of the job this is, from 1; if it never happens, the next one has this number
	Charged   int           // starts that count against MaxAttempts, this one included
	Slipped   time.Duration // how long before Slot the job's turn was, for which nobody asked in time
	Tolerance time.Duration // a start later than slot + Tolerance needs another slot
	Lease     time.Duration
	Timeout   time.Duration
	Backoff   struct{ Min, Max time.Duration }

	MaxAttempts int // after this many charged starts that failed, the job is dead

	Type    string
	Payload []byte
	Headers map[string]string
	Since   time.Time // when the job was accepted or became due
}

// Answers of Enter and Again other than a Grant.
const (
	TicketVoid    = "gone"    // no job of the tenant is out
	TicketParked  = "parked"  // back in its bucket: the tenant is parked
	TicketPaused  = "paused"  // back in its bucket: the tenant is paused
	TicketEarly   = "early"   // back in its bucket: its slot is too far ahead to hold a worker for it
	TicketExpired = "expired" // the job had waited too long and ended
)

// Enter asks to start a job on a ticket, under a fresh token. It returns a Grant, usually of the
// job that the ticket was released for, or why there is none.
func (g *Gate) Enter(ctx context.Context, t Ticket, token string) (*Grant, string, error) {
	return g.ask(ctx, t, "-", token)
}

// Again asks for another slot for a start whose slot was missed, under a fresh token.
func (g *Gate) Again(ctx context.Context, missed *Grant, token string) (*Grant, string, error) {
	return g.ask(ctx, missed.Ticket, missed.Token, token)
}

func (g *Gate) ask(ctx context.Context, t Ticket, old, token string) (*Grant, string, error) {
	v, err := g.q.Run(ctx, GateScript, "ask for a slot", t.Tenant, t.ID, t.Release, old, token)
	if err != nil {
		return nil, "", err
	}
	r := ReplyOf(v)
	switch answer := r.Str(); answer {
	case "run":
		grant, err := ReadGrant(r, token)
		return grant, "", err
	case "back":
		return nil, r.Str(), nil
	default:
		return nil, answer, nil
	}
}

// ReadGrant reads what granted() of lua/lib/slot.lua wrote, after its first word.
func ReadGrant(r *Reply, token string) (*Grant, error) {
	g := &Grant{Token: token}
	g.Tenant, g.ID = r.Str(), r.Str()
	g.Ahead, g.Slot = r.Micros(), r.Instant()
	g.Attempt, g.Charged = int(r.Int()), int(r.Int())
	g.Tolerance, g.Lease = r.Micros(), r.Micros()
	g.Timeout = time.Duration(r.Int()) * time.Millisecond
	g.Backoff.Min = time.Duration(r.Int()) * time.Millisecond
	g.Backoff.Max = time.Duration(r.Int()) * time.Millisecond
	g.MaxAttempts = int(r.Int())
	b, err := ReadBody(r.Str())
	g.Slipped = r.Micros()
	if err != nil {
		return g, fmt.Errorf("job %s of tenant %s: %w", g.ID, g.Tenant, err)
	}
	g.Timeout, g.MaxAttempts = cmp.Or(max(b.Timeout, 0), g.Timeout), cmp.Or(max(b.MaxAttempts, 0), g.MaxAttempts)
	g.Type, g.Payload, g.Headers, g.Since = b.Type, b.Payload, b.Headers, b.Since
	return g, nil
}

// GiveBack says that a ticket will not be used: the tenant's youngest job that is out returns to
// the front of its bucket.
func (g *Gate) GiveBack(ctx context.Context, t Ticket) error {
	_, err := g.q.Run(ctx, GivebackScript, "give ticket back", t.Tenant, t.ID, t.Release)
	return err
}

// Ending says how a start ended.
type Ending string

const (
	EndOK           Ending = "ok"
	EndError        Ending = "error"         // comes back after Delay, or is dead if it used up its attempts
	EndUncharged    Ending = "uncharged"     // comes back after Delay; not charged, but one of the max_throttles starts after which it is dead
	EndDead         Ending = "dead"          // no attempt can succeed
	EndThrottled    Ending = "throttled"     // the tenant is paused for Delay; not charged
	EndThrottledAll Ending = "throttled-all" // the downstream is paused for Delay; not charged
	EndBack         Ending = "back"          // back to the front; not charged
)

// Finish is what a worker reports.
type Finish struct {
	Ending Ending
	Delay  time.Duration // backoff of EndError and EndUncharged, pause of EndThrottled
	Text   string        // result or error
	Next   string        // a fresh token, if the worker wants the downstream's next job at once
	Began  Began         // when the handler began. NeverBegan, with EndBack or EndDead, takes the attempt back
}

// Began tells what came of a slot, as lua/finish.lua takes it: when the handler began. It is empty
// if the worker does not know.
type Began string

// NeverBegan says that the handler did not begin: the slot passed without a start.
const NeverBegan Began = "-"

// BeganAfter says how long after its slot the handler began, by the worker's monotonic clock.
func BeganAfter(late time.Duration) Began { return Began(Micros(late)) }

// Finished is the answer to a report.
type Finished struct {
	Became string // "done", "retry", "dead", "cancelled", "back", or "stale" if somebody else owns the job; then nothing was changed
	InARow int    // of a throttled start: how many starts of its tenant in a row were throttled, this one included; 0 in a repeated answer
	Next   *Grant // the next job, if the worker wanted one and could have it
}

// Finish records how a start ended, if its token still owns the job, and grants the next job to a
// worker that wants one and can have it. An error may come with a Next: that job was granted, and
// cannot be read.
func (g *Gate) Finish(ctx context.Context, of *Grant, f Finish) (Finished, error) {
	token := cmp.Or(f.Next, "-")
	args := []any{of.Tenant, of.ID, of.Token, string(f.Ending), Micros(f.Delay), f.Text, token, string(cmp.Or(f.Began, "?"))}
	answer, err := g.reports.Do(ctx, args)
	switch {
	case err != nil:
		return Finished{}, StoreErr("finish jobs", err)
	case answer.err != nil:
		return Finished{}, answer.err
	}
	r := ReplyOf(answer.reply)
	out := Finished{Became: r.Str()}
	if out.Became == "fault" {
		return Finished{}, fmt.Errorf("finish job %s of tenant %s: its record cannot be read: %s", of.ID, of.Tenant, r.Str())
	}
	for r.More() {
		switch r.Str() {
		case "throttled":
			out.InARow = int(r.Int())
		case "run":
			out.Next, err = ReadGrant(r, token)
			return out, err
		}
	}
	return out, nil
}

// reported is what the finish script answers to one report.
type reported struct {
	reply any
	err   error
}

// report makes one call for the reports of several workers, and more where the script's budget does
// not suffice for all.
func (g *Gate) report(ctx context.Context, reports [][]any) (out []reported) {
	for len(out) < len(reports) {
		v, err := g.q.Run(ctx, FinishScript, "finish jobs", slices.Concat(reports[len(out):]...)...)
		r := ReplyOf(v)
		out = append(out, reported{r.Next(), err})
		for len(out) < len(reports) && (err != nil || r.More()) {
			out = append(out, reported{r.Next(), err})
		}
	}
	return out
}

// Standing is what Beat learns of a running job.
type Standing int64

const (
	Lost      Standing = 0 // somebody else may run it by now
	Owned     Standing = 1
	Cancelled Standing = 2 // still owned, and somebody cancelled it
)

// Held is a start that a pool owns.
type Held struct {
	*Grant
	Begun bool // its handler has begun; the first Beat that says so counts it as a start
}

// Beat says that a pool lives, has places, and still runs the jobs that it owns; it extends their
// leases. A pool that has not beaten for ttl counts as gone. Beat returns a Standing for each job.
func (g *Gate) Beat(ctx context.Context, pool string, places int, ttl time.Duration, own []Held) ([]Standing, error) {
	out, _, err := g.beat(ctx, pool, places, ttl, own, 0)
	return out, err
}

// BeatAgain is Beat for a pool that has beaten within the last minute, and has not left. Such a
// pool is unknown only if Redis has lost what it had; then known is false, and nothing was changed.
func (g *Gate) BeatAgain(ctx context.Context, pool string, places int, ttl time.Duration, own []Held) (_ []Standing, known bool, err error) {
	return g.beat(ctx, pool, places, ttl, own, 1)
}

// reachTrips is by how many round trips of the furthest pool tickets leave earlier, see
// lua/release.lua. A pool that takes time before it asks for a slot is further away by as much.
const reachTrips = 3

func (g *Gate) beat(ctx context.Context, pool string, places int, ttl time.Duration, own []Held, again int) ([]Standing, bool, error) {
	const unknown = Standing(-1)
	out := make([]Standing, 0, len(own))
	for first := true; first || len(own) > 0; first = false {
		n := min(len(own), Batch)
		args := []any{pool, places, Micros(ttl), again, Micros(max(g.Trip.Takes(), g.Warm.Takes()/reachTrips))}
		for _, o := range own[:n] {
			args = append(args, o.Tenant, o.ID, o.Token, Flag(o.Begun))
		}
		own = own[n:]
		v, err := g.q.Run(ctx, BeatScript, "extend leases", args...)
		if err != nil {
			return out, true, err
		}
		for r := ReplyOf(v); r.More(); {
			s := Standing(r.Int())
			if s == unknown {
				return nil, false, nil
			}
			out = append(out, s)
		}
	}
	return out, true, nil
}

// Leave forgets a pool that has stopped. Jobs that it still runs stay counted until their leases
// end.
func (g *Gate) Leave(ctx context.Context, pool string) error {
	if err := g.q.RDB.HDel(ctx, g.q.PoolsKey(), pool, pool+":d").Err(); err != nil {
		return g.q.Failed(ctx, "leave", err)
	}
	return nil
}
