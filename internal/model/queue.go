package model

import "time"

// Queue is the calls of a downstream: of the model, or, in tests, of the scripts themselves.
type Queue interface {
	Set(now int64)
	Offer(tenant string, offers ...Offer) []Answer
	Release(limit int, ttl, trip time.Duration) (tickets []Ticket, wait int64, more bool)
	Enter(k Ticket, token string) (*Grant, string)
	Again(tenant, id, old, token string) (*Grant, string)
	Finish(reports ...Report) []Ended
	GiveBack(k Ticket) bool
	Beat(pool string, places int, ttl, trip time.Duration, own []Held) []Standing
	Cancel(tenant, id string) string
	Purge(tenant string) int
	RequeueDead(tenant string, ids ...string) (n int, full bool)
	ForgetDead(tenant string, ids ...string) int
	Pause(tenant string, us int64) (until int64)
	SetTenant(tenant string, p Policy)
	SetDownstream(p DownstreamPolicy)
}

var _ Queue = (*Downstream)(nil)
