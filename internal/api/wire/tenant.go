package wire

import (
	"github.com/jobshaper/jobshaper/internal/setting"
	"github.com/jobshaper/jobshaper/shaper"
)

// Tenant is a shaper.TenantInfo in JSON.
type Tenant struct {
	Tenant      string           `json:"tenant"`
	Downstream  string           `json:"downstream"`
	Known       bool             `json:"known"` // it has a policy of its own
	Level       int              `json:"level"` // waiting + delayed: what depth bounds
	Waiting     int              `json:"waiting"`
	Delayed     int              `json:"delayed"`
	Out         int              `json:"out"`
	Running     int              `json:"running"`
	Dead        int              `json:"dead"`
	OldestMS    int64            `json:"oldest_ms"`
	NextSlot    *string          `json:"next_slot"`      // when the job that leaves next will start; null where that cannot be said
	Note        string           `json:"note,omitempty"` // why next_slot is null: parked, paused, no_workers or in_flight
	Paused      bool             `json:"paused"`
	PausedUntil *string          `json:"paused_until"`
	Parked      string           `json:"parked,omitempty"` // which field cannot be read, and its value: nothing of it starts until that is set right
	Throttled   bool             `json:"throttled"`        // the downstream lets nothing through
	InARow      int              `json:"throttled_in_a_row"`
	Policy      Policy           `json:"policy"` // what applies
	Counters    map[string]int64 `json:"counters"`
}

// NewTenant returns t in JSON.
func NewTenant(downstream string, t shaper.TenantInfo) Tenant {
	return Tenant{
		Tenant: t.Name, Downstream: downstream, Known: t.Known, Level: t.Level(), Waiting: t.Waiting, Delayed: t.Delayed,
		Out: t.Out, Running: t.Running, Dead: t.Dead, OldestMS: t.Oldest.Milliseconds(), NextSlot: timestamp(t.NextSlot), Note: t.Note,
		Paused: t.Paused, PausedUntil: timestamp(t.PausedUntil), Parked: t.Parked, Throttled: t.Throttled(), InARow: t.InARow,
		Policy: Policy(t.Effective), Counters: Counters(t.Counters),
	}
}

// Policy is a shaper.Policy in JSON, written as in a config file.
type Policy shaper.Policy

// MarshalJSON implements json.Marshaler.
func (p Policy) MarshalJSON() ([]byte, error) { return setting.JSON((*shaper.Policy)(&p)) }

// Counters returns c by name.
func Counters(c shaper.Counters) map[string]int64 {
	return map[string]int64{"accepted": c.Accepted, "started": c.Started, "done": c.Done, "failed": c.Failed, "retried": c.Retried,
		"throttled": c.Throttled, "dead": c.Dead, "expired": c.Expired, "cancelled": c.Cancelled, "dropped": c.Dropped,
		"crashed": c.Crashed, "suspected": c.Suspected, "lost_tickets": c.LostTickets, "forgotten": c.Forgotten, "evicted": c.Evicted}
}
