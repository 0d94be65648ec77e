package shaper

import (
	"fmt"
	"strings"
	"time"

	"github.com/jobshaper/jobshaper/internal/model"
	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/setting"
)

// scripted makes the calls of the model on the scripts of a world.
type scripted struct{ *world }

var _ model.Queue = scripted{}

func (s scripted) Set(now int64) { s.now = now }

func (s scripted) ask(script *queue.Script, doing string, args ...any) any {
	s.t.Helper()
	v, err := s.q.Run(s.t.Context(), script, doing, args...)
	s.must(err)
	return v
}

func (s scripted) Offer(tenant string, offers ...model.Offer) (out []model.Answer) {
	args := []any{tenant}
	for _, o := range offers {
		spec := Spec{Tenant: tenant, ID: o.ID, Type: "test", Payload: []byte(o.Body), Delay: o.Delay, MaxWait: o.MaxWait}
		l, err := s.client.offerArgs(&spec)
		s.must(err)
		l[2] = o.NotBefore // which lies too far ahead for a client
		// The nonce that tells calls apart is random; a repeated call has that of the first.
		_, nonce, _ := strings.Cut(l[3].(string), ".")
		for _, i := range []int{3, 4} {
			l[i] = strings.Replace(l[i].(string), "."+nonce, "."+o.Call, 1)
		}
		args = append(args, l...)
	}
	for r := queue.ReplyOf(s.ask(queue.EnqueueScript, "enqueue", args...)); r.More(); {
		one := queue.ReplyOf(r.Next())
		a := model.Answer{Status: model.Status(one.Str()), Position: int(one.Int()), Start: one.Int(), Retry: one.Int(), State: one.Str(),
			Note: one.Str()}
		if (a.Status == model.Full || a.Status == model.Block) && a.Retry < milli {
			s.t.Errorf("%s, and try again after %d µs", a.Status, a.Retry)
		}
		waits := a.State == string(model.Waiting) || a.State == string(model.Delayed) // a repeated offer may have started
		if waits && a.Start != 0 && a.Start < s.now {                                 // 0 is not known
			s.t.Errorf("accepted to start %d µs ago", s.now-a.Start)
		}
		out = append(out, a)
	}
	return out
}

func (s scripted) Release(limit int, ttl, trip time.Duration) (tickets []model.Ticket, wait int64, more bool) {
	r := queue.ReadReleased(s.ask(queue.ReleaseScript, "release", limit, queue.Micros(ttl), s.now%2, queue.Micros(trip)))
	for _, k := range r.Tickets {
		tickets = append(tickets, model.Ticket(k))
	}
	return tickets, r.Wait.Microseconds(), r.More
}

func (s scripted) Enter(k model.Ticket, token string) (*model.Grant, string) {
	g, why, err := s.gate.Enter(s.t.Context(), queue.Ticket(k), token)
	s.must(err)
	return grantOf(g), why
}

func (s scripted) Again(tenant, id, old, token string) (*model.Grant, string) {
	g, why, err := s.gate.Again(s.t.Context(), grantTo(tenant, id, old), token)
	s.must(err)
	return grantOf(g), why
}

// grantTo is what a worker holds of a start.
func grantTo(tenant, id, token string) *queue.Grant {
	return &queue.Grant{Ticket: queue.Ticket{Tenant: tenant, ID: id}, Token: token}
}

func grantOf(g *queue.Grant) *model.Grant {
	if g == nil {
		return nil
	}
	return &model.Grant{Tenant: g.Tenant, ID: g.ID, Token: g.Token, Slot: g.Slot.UnixMicro(), Ahead: g.Ahead.Microseconds(),
		Attempt: int64(g.Attempt), Charged: int64(g.Charged)}
}

// Finish reports one end as workers do, and several as the Gate does for many of them.
func (s scripted) Finish(reports ...model.Report) (out []model.Ended) {
	if len(reports) == 1 {
		r := reports[0]
		f := queue.Finish{Ending: queue.Ending(r.Ending), Delay: r.Delay, Text: "said\nso", Next: r.Next}
		switch r.Late {
		case "?":
		case "-":
			f.Began = queue.NeverBegan
		default:
			f.Began = queue.BeganAfter(time.Duration(atoi(r.Late)) * time.Microsecond)
		}
		end, err := s.gate.Finish(s.t.Context(), grantTo(r.Tenant, r.ID, r.Token), f)
		s.must(err)
		return []model.Ended{{Became: end.Became, InARow: int64(end.InARow), Next: grantOf(end.Next)}}
	}
	var args []any
	for _, r := range reports {
		args = append(args, r.Tenant, r.ID, r.Token, string(r.Ending), queue.Micros(r.Delay), "said\nso", r.Next, r.Late)
	}
	r := queue.ReplyOf(s.ask(queue.FinishScript, "finish jobs", args...))
	for _, of := range reports {
		one := queue.ReplyOf(r.Next())
		end := model.Ended{Became: one.Str()}
		for one.More() {
			switch one.Str() {
			case "throttled":
				end.InARow = one.Int()
			case "run":
				g, err := queue.ReadGrant(one, of.Next)
				s.must(err)
				end.Next = grantOf(g)
			}
		}
		out = append(out, end)
	}
	if r.More() {
		s.t.Errorf("more answers than the %d reports", len(reports))
	}
	return out
}

func (s scripted) GiveBack(k model.Ticket) bool {
	return s.ask(queue.GivebackScript, "give back", k.Tenant, k.ID, k.Release) == int64(1)
}

func (s scripted) Beat(pool string, places int, ttl, trip time.Duration, own []model.Held) (out []model.Standing) {
	var held []queue.Held
	for _, h := range own {
		held = append(held, queue.Held{Grant: grantTo(h.Tenant, h.ID, h.Token), Begun: h.Begun})
	}
	gate := queue.NewGate(s.q)
	gate.Trip.Note(trip)
	l, err := gate.Beat(s.t.Context(), pool, places, ttl, held)
	s.must(err)
	for _, st := range l {
		out = append(out, model.Standing(st))
	}
	return out
}

func (s scripted) Cancel(tenant, id string) string {
	return fmt.Sprint(s.ask(queue.CancelScript, "cancel", tenant, id))
}

func (s scripted) Purge(tenant string) int {
	return int(s.ask(queue.PurgeScript, "purge", tenant).(int64))
}

func (s scripted) dead(tenant, verb string, ids []string) (n int, full bool) {
	args := []any{tenant, verb}
	for _, id := range ids {
		args = append(args, id)
	}
	r := queue.ReplyOf(s.ask(queue.DeadScript, "dead", args...))
	return int(r.Int()), r.Int() == 1
}

func (s scripted) RequeueDead(tenant string, ids ...string) (int, bool) {
	return s.dead(tenant, "requeue", ids)
}

func (s scripted) ForgetDead(tenant string, ids ...string) int {
	n, _ := s.dead(tenant, "forget", ids)
	return n
}

func (s scripted) Pause(tenant string, us int64) int64 {
	v := queue.ReplyOf([]any{s.ask(queue.PauseScript, "pause", tenant, us)})
	return v.Int()
}

func (s scripted) SetTenant(tenant string, p model.Policy) {
	s.set(tenant, Policy{Rate: p.Rate, Depth: int(p.Depth), Weight: int(p.Weight), OnFull: OnFull(p.OnFull), MaxInFlight: int(p.MaxInFlight),
		MaxAttempts: int(p.MaxAttempts), MaxThrottles: int(p.MaxThrottles), MaxWait: p.MaxWait,
		Retention: p.Retention, MaxEnds: int(p.MaxEnds)})
}

func (s scripted) SetDownstream(p model.DownstreamPolicy) {
	rate, log, spacing := "", "", ""
	if !p.Rate.IsZero() {
		rate = setting.KeepRate(p.Rate)
	}
	set := func(n int64) string {
		if n == 0 {
			return ""
		}
		return fmt.Sprint(n)
	}
	if p.Log {
		log = "10000"
	}
	if p.Shared {
		spacing = "shared"
	}
	s.ask(queue.PolicyScript, "set policy", "", "rate", rate, "spacing", spacing, "cap", set(p.MaxInFlight), "log", log,
		"lease", set(p.Lease.Microseconds()), "crashes", set(p.MaxCrashes),
		"max_ends", set(p.MaxEnds), "p:ends", set(p.Defaults.MaxEnds))
}
