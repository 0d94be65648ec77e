package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/jobshaper/jobshaper/internal/coalesce"
)

// Gate is the one door to a handler: it grants the slots of a downstream to workers, keeps their leases, and records
// how their jobs ended. Package workers stands on it. All its calls may be repeated. It is safe for concurrent use.
type Gate struct {
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
	Wait      time.Duration // from the moment the reply was made until the slot; negative if the slot passed
	Slot      time.Time     // by Redis' clock
	Attempt   int           // which start of the job this is, from 1; if it never happens, the next one has this number
	Charged   int           // starts that count against MaxAttempts, this one included
	Tolerance time.Duration // a start later than slot + Tolerance needs another slot
	Lease     time.Duration
	Timeout   time.Duration
	Backoff   struct{ Min, Max time.Duration }

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
	g.Wait, g.Slot = r.Micros(), r.Instant()
	g.Attempt, g.Charged = int(r.Int()), int(r.Int())
	g.Tolerance, g.Lease = r.Micros(), r.Micros()
	g.Timeout = time.Duration(r.Int()) * time.Millisecond
	g.Backoff.Min = time.Duration(r.Int()) * time.Millisecond
	g.Backoff.Max = time.Duration(r.Int()) * time.Millisecond
	g.MaxAttempts = int(r.Int())
	b, err := ReadBody(r.Str())
	if err != nil {
		return g, fmt.Errorf("job %s of tenant %s: %w", g.ID, g.Tenant, err)
	}
	if b.Timeout > 0 {
		g.Timeout = b.Timeout
	}
	if b.MaxAttempts > 0 {
		g.MaxAttempts = b.MaxAttempts
	}
	g.Type, g.Payload, g.Headers, g.Since = b.Type, b.Payload, b.Headers, b.Since
	return g, nil
}

// GiveBack says that a ticket will not be used: the tenant's youngest job that is out returns to the front of its bucket.
func (g *Gate) GiveBack(ctx context.Context, t Ticket) error {
	_, err := g.q.Run(ctx, GivebackScript, "give ticket back", t.Tenant, t.ID, t.Release)
	return err
}
