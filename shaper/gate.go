package shaper

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/clip"
	"github.com/jobshaper/jobshaper/internal/coalesce"
)

// Ticket is what travels through asynq: "wake up for this tenant". It was released for one job, and starts the tenant's oldest
// that is out; so it may be lost, doubled or late without harm, and jobs start in their order although tickets race.
type Ticket struct {
	Tenant  string
	ID      string // the job that it was released for
	Release int64  // how many tickets were released for that job
}

// String encodes the ticket, as ParseTicket reads it.
func (t Ticket) String() string { return fmt.Sprintf("%s %s %d", t.Tenant, t.ID, t.Release) }

// ParseTicket reads what String wrote.
func ParseTicket(s string) (Ticket, error) {
	f := strings.Split(s, " ")
	if len(f) != 3 {
		return Ticket{}, &FieldError{"ticket", clip.Value(s), "tenant, id and release number"}
	}
	n, err := strconv.ParseInt(f[2], 10, 64)
	if err != nil {
		return Ticket{}, &FieldError{"ticket", clip.Value(s), "a release number at its end"}
	}
	t := Ticket{Tenant: f[0], ID: f[1], Release: n}
	return t, firstErr(ValidName("tenant", t.Tenant), ValidName("id", t.ID))
}

// Gate is the one door to a handler: it grants the slots of a downstream to workers, keeps their leases, and takes
// down how their jobs ended. Package workers stands on it. All its calls may be repeated. It is safe for concurrent use.
type Gate struct {
	q       queue
	reports *coalesce.Group[[]any, reported]
}

// NewGate returns the Gate of a downstream. It does not talk to Redis.
func NewGate(rdb redis.UniversalClient, downstream string) (*Gate, error) {
	q, err := newQueue(rdb, downstream)
	if err != nil {
		return nil, err
	}
	return newGate(q), nil
}

func newGate(q queue) *Gate {
	g := &Gate{q: q}
	g.reports = coalesce.New(batch, g.report)
	return g
}

// NewToken returns a fresh token for one start by a pool.
func NewToken(pool string) string { return pool + "." + nonce() }

// Grant is a start that was granted: the job, its slot, and the token that owns it.
type Grant struct {
	Ticket
	Token     string
	Wait      time.Duration // from the moment the reply was made until the slot; negative if the slot passed
	Slot      time.Time     // by Redis' clock
	Attempt   int           // which start of the job this is, from 1; if it never happens, the next one has this number
	Charged   int           // starts that count against MaxAttempts, this one included
	Tolerance time.Duration // a start later than slot + Tolerance needs another slot
	Lease     time.Duration
	Timeout   time.Duration
	Backoff   Backoff

	MaxAttempts int // after so many charged starts that failed the job is dead

	Type    string
	Payload []byte
	Headers map[string]string
	Since   time.Time // when the job was accepted or became due
}

// Answers of Enter and Again other than a Grant.
const (
	TicketVoid    = "gone"    // no job of the tenant is out
	TicketPaused  = "paused"  // back in its bucket: the tenant is paused
	TicketEarly   = "early"   // back in its bucket: its slot is too far ahead to hold a worker for it
	TicketExpired = "expired" // the job had waited too long and ended
)

// Enter asks to start a job on a ticket, under a fresh token. It returns a Grant, most often of the job that the ticket was released
// for, or why there is none.
func (g *Gate) Enter(ctx context.Context, t Ticket, token string) (*Grant, string, error) {
	return g.ask(ctx, t, "-", token)
}

// Again asks for another slot for a start whose slot was missed, under a fresh token.
func (g *Gate) Again(ctx context.Context, missed *Grant, token string) (*Grant, string, error) {
	return g.ask(ctx, missed.Ticket, missed.Token, token)
}

func (g *Gate) ask(ctx context.Context, t Ticket, old, token string) (*Grant, string, error) {
	v, err := g.q.run(ctx, gateScript, "ask for a slot", t.Tenant, t.ID, t.Release, old, token)
	if err != nil {
		return nil, "", err
	}
	r := replyOf(v)
	switch answer := r.str(); answer {
	case "run":
		grant, err := granted(r, token)
		return grant, "", err
	case "back":
		return nil, r.str(), nil
	default:
		return nil, answer, nil
	}
}

// granted reads what granted() of lua/lib/slot.lua wrote, after its first word.
func granted(r *reply, token string) (*Grant, error) {
	g := &Grant{Token: token}
	g.Tenant, g.ID = r.str(), r.str()
	g.Wait, g.Slot = r.micros(), r.instant()
	g.Attempt, g.Charged = int(r.int()), int(r.int())
	g.Tolerance, g.Lease = r.micros(), r.micros()
	g.Timeout = time.Duration(r.int()) * time.Millisecond
	g.Backoff.Min = time.Duration(r.int()) * time.Millisecond
	g.Backoff.Max = time.Duration(r.int()) * time.Millisecond
	g.MaxAttempts = int(r.int())
	e, err := decodeBody(r.str())
	if err != nil {
		return g, fmt.Errorf("job %s of tenant %s: %w", g.ID, g.Tenant, err)
	}
	if e.timeout > 0 {
		g.Timeout = e.timeout
	}
	if e.attempts > 0 {
		g.MaxAttempts = e.attempts
	}
	g.Type, g.Payload, g.Headers, g.Since = e.typ, e.payload, e.headers, e.since
	return g, nil
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

// Finished is the answer to a report.
type Finished struct {
	Became string // "done", "retry", "dead", "cancelled", "back", or "stale" if somebody else owns the job; then nothing was changed
	InARow int    // of a throttled start: how many of its tenant were so in a row, this one included; 0 in a repeated answer
	Next   *Grant // the next job, if the worker wanted one and could have it
}

// Finish records how a start ended, if its token still owns the job, and grants the next job to a worker that
// wants one and can have it. With an error there may be a Next all the same: one whose job cannot be read.
func (g *Gate) Finish(ctx context.Context, of *Grant, f Finish) (Finished, error) {
	token := f.Next
	if token == "" {
		token = "-"
	}
	args := []any{of.Tenant, of.ID, of.Token, string(f.Ending), micros(f.Delay), f.Text, token, f.Began.field()}
	answer, err := g.reports.Do(ctx, args)
	switch {
	case err != nil:
		return Finished{}, storeErr("finish jobs", err)
	case answer.err != nil:
		return Finished{}, answer.err
	}
	r := replyOf(answer.reply)
	out := Finished{Became: r.str()}
	if out.Became == "fault" {
		return Finished{}, fmt.Errorf("finish job %s of tenant %s: its record cannot be read: %s", of.ID, of.Tenant, r.str())
	}
	for r.more() {
		switch r.str() {
		case "throttled":
			out.InARow = int(r.int())
		case "run":
			out.Next, err = granted(r, token)
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

// report makes one call for the reports of several workers.
func (g *Gate) report(ctx context.Context, reports [][]any) []reported {
	var args []any
	for _, r := range reports {
		args = append(args, r...)
	}
	v, err := g.q.run(ctx, finishScript, "finish jobs", args...)
	r := replyOf(v)
	out := make([]reported, len(reports))
	for i := range out {
		out[i] = reported{r.next(), err}
	}
	return out
}

// GiveBack says that a ticket will not be used: the tenant's youngest job that is out returns to the front of its bucket.
func (g *Gate) GiveBack(ctx context.Context, t Ticket) error {
	_, err := g.q.run(ctx, givebackScript, "give ticket back", t.Tenant, t.ID, t.Release)
	return err
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
	Begun bool // its handler has begun; from the first Beat that says so it counts as a start
}

// Beat says that a pool lives, has places, and still runs the jobs that it owns; it extends their leases. A pool
// that is not heard of for ttl counts as gone. Returns a Standing for each job.
func (g *Gate) Beat(ctx context.Context, pool string, places int, ttl time.Duration, own []Held) ([]Standing, error) {
	out, _, err := g.beat(ctx, pool, places, ttl, own, 0)
	return out, err
}

// BeatAgain is Beat for a pool that has beaten within the last minute, and did not leave. Such a pool is unknown only where Redis has lost
// what it had; then known is false, and nothing was changed.
func (g *Gate) BeatAgain(ctx context.Context, pool string, places int, ttl time.Duration, own []Held) (_ []Standing, known bool, err error) {
	return g.beat(ctx, pool, places, ttl, own, 1)
}

func (g *Gate) beat(ctx context.Context, pool string, places int, ttl time.Duration, own []Held, again int) ([]Standing, bool, error) {
	const unknown = Standing(-1)
	out := make([]Standing, 0, len(own))
	for first := true; first || len(own) > 0; first = false {
		n := min(len(own), batch)
		args := []any{pool, places, micros(ttl), again}
		for _, o := range own[:n] {
			begun := 0
			if o.Begun {
				begun = 1
			}
			args = append(args, o.Tenant, o.ID, o.Token, begun)
		}
		own = own[n:]
		v, err := g.q.run(ctx, beatScript, "extend leases", args...)
		if err != nil {
			return out, true, err
		}
		for r := replyOf(v); r.more(); {
			s := Standing(r.int())
			if s == unknown {
				return nil, false, nil
			}
			out = append(out, s)
		}
	}
	return out, true, nil
}

// Leave forgets a pool that has stopped. Jobs that it still runs stay counted until their leases end.
func (g *Gate) Leave(ctx context.Context, pool string) error {
	if err := g.q.rdb.HDel(ctx, g.q.poolsKey(), pool).Err(); err != nil {
		return g.q.failed(ctx, "leave", err)
	}
	return nil
}

// Signal is what a Listener hears.
type Signal struct {
	// 'w' something may leave earlier than thought, 't' tickets are on their way, 'c' a running job was cancelled, 'p' a tenant is
	// paused: what holds a slot that has not come should go back; without a tenant the whole downstream is.
	Kind       byte
	Tenant, ID string
}

func parseSignal(s string) (Signal, bool) {
	f := strings.Fields(s)
	switch {
	case len(f) == 1 && (f[0] == "w" || f[0] == "t" || f[0] == "p"):
		return Signal{Kind: f[0][0]}, true
	case len(f) == 2 && f[0] == "p":
		return Signal{Kind: 'p', Tenant: f[1]}, true
	case len(f) == 3 && f[0] == "c":
		return Signal{Kind: 'c', Tenant: f[1], ID: f[2]}, true
	}
	return Signal{}, false
}
