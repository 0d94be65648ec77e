package shaper

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/queue"
)

// TenantInfo is the state of a tenant at an instant.
type TenantInfo struct {
	Name        string
	Known       bool   // it has a policy of its own
	Set         Policy // what was set for it; fields that are not set are inherited
	Effective   Policy // what applies
	Waiting     int
	Delayed     int // not due yet, or waiting out a backoff
	Out         int // tickets out
	Running     int
	Dead        int
	Oldest      time.Duration // how long the head of its bucket has waited
	NextSlot    time.Time     // when the next job to leave its bucket starts, by Redis' clock; zero if it cannot be said
	Note        string        // why it cannot: one of the Note constants
	Paused      bool
	PausedUntil time.Time // zero if paused without an end
	Parked      string    // which field of it, or of the downstream, cannot be read, and its value; empty if all can. See Admin.Tenant
	InARow      int       // how many starts of the tenant in a row were throttled, whatever the job; see ThrottledFor
	Counters    Counters
}

// ThrottledFor is how many starts of a tenant in a row must be throttled before we say that its
// downstream lets nothing through.
const ThrottledFor = 10

// Throttled reports whether the downstream has throttled at least the tenant's last ThrottledFor
// starts.
func (t TenantInfo) Throttled() bool { return t.InARow >= ThrottledFor }

// Level is how many jobs wait: what Depth bounds.
func (t TenantInfo) Level() int { return t.Waiting + t.Delayed }

// Tenant returns the current state of one tenant.
//
// A tenant is parked if a field of its policy or its state holds what no version writes. Nobody can
// say then what applies to it, so nothing of it starts, expires, is dropped or becomes dead, and it
// is offered nothing more, until the field is set right. What runs ends as ever, and no other tenant
// is concerned.
func (a *Admin) Tenant(ctx context.Context, tenant string) (TenantInfo, error) {
	if err := ValidName("tenant", tenant); err != nil {
		return TenantInfo{}, err
	}
	l, err := a.infos(ctx, []string{tenant})
	if err != nil {
		return TenantInfo{}, err
	}
	if len(l) == 0 {
		return TenantInfo{}, &UnseenError{a.q.Downstream, tenant}
	}
	return l[0], nil
}

// Tenants returns the current state of all known tenants, by name.
func (a *Admin) Tenants(ctx context.Context) ([]TenantInfo, error) {
	names, err := a.Names(ctx, false)
	if err != nil {
		return nil, err
	}
	return a.infos(ctx, names)
}

// Names returns the known tenants, sorted; with busy only those that have jobs waiting or in
// flight.
func (a *Admin) Names(ctx context.Context, busy bool) ([]string, error) {
	lowest := "-inf"
	if busy {
		lowest = strconv.FormatInt(queue.Forever, 10) // a tenant that is busy has this score, or a higher one
	}
	names, err := a.q.RDB.ZRangeByScore(ctx, a.q.TenantsKey(), &redis.ZRangeBy{Min: lowest, Max: "+inf"}).Result()
	if err != nil {
		return nil, a.q.Failed(ctx, "list tenants", err)
	}
	if names = proper(names); len(names) == 0 {
		return nil, a.seen(ctx)
	}
	sort.Slice(names, func(i, j int) bool { return strings.ToLower(names[i]) < strings.ToLower(names[j]) })
	return names, nil
}

// proper leaves out what is no name of a tenant, and somebody else must have written: it is in no
// page, no metric and no message.
func proper(names []string) []string {
	return slices.DeleteFunc(names, func(name string) bool { return ValidName("tenant", name) != nil })
}

// SetTenant sets those fields of a tenant's policy that are set in p; the others stay as they are.
// A tenant that was set is known, see RefuseUnknown.
func (a *Admin) SetTenant(ctx context.Context, tenant string, p Policy) error {
	if err := cmp.Or(ValidName("tenant", tenant), p.Validate()); err != nil {
		return err
	}
	return a.setPolicy(ctx, tenant, policyFields(p))
}

// Purge cancels what waits in a tenant's bucket or is delayed, and returns how many jobs that were.
func (a *Admin) Purge(ctx context.Context, tenant string) (int, error) {
	if err := ValidName("tenant", tenant); err != nil {
		return 0, err
	}
	for total := 0; ; {
		v, err := a.runSeen(ctx, queue.PurgeScript, "purge", tenant)
		if err != nil {
			return total, err
		}
		n, _ := v.(int64)
		if n == 0 {
			return total, nil
		}
		total += int(n)
	}
}

// Remove forgets a tenant and its policy. It is an error if anything of the tenant is left.
func (a *Admin) Remove(ctx context.Context, tenant string) error {
	if err := ValidName("tenant", tenant); err != nil {
		return err
	}
	v, err := a.runSeen(ctx, queue.ForgetScript, "remove tenant", tenant)
	if err != nil {
		return err
	}
	if r := queue.ReplyOf(v); r.More() {
		return &FieldError{"tenant", tenant, fmt.Sprintf("nothing left of it, but %d jobs wait, %d are in flight, %d are dead: purge, or remove the dead first", r.Int(), r.Int(), r.Int())}
	}
	return nil
}

func (a *Admin) infos(ctx context.Context, names []string) ([]TenantInfo, error) {
	ds, err := a.Downstream(ctx)
	if err != nil {
		return nil, err
	}
	return a.read(ctx, names, ds.Defaults)
}

func (a *Admin) read(ctx context.Context, names []string, defaults Policy) ([]TenantInfo, error) {
	var out []TenantInfo
	for len(names) > 0 {
		n := min(len(names), queue.Batch)
		args := make([]any, n)
		for i, name := range names[:n] {
			args[i] = name
		}
		names = names[n:]
		v, err := a.q.Run(ctx, queue.StatsScript, "read tenants", args...)
		if err != nil {
			return nil, err
		}
		r := queue.ReplyOf(v)
		now := r.Instant()
		for r.More() {
			out = append(out, tenantInfo(queue.ReplyOf(r.Next()), defaults, now))
		}
	}
	return out, nil
}

func tenantInfo(r *queue.Reply, defaults Policy, now time.Time) TenantInfo {
	t := TenantInfo{Name: r.Str(), Waiting: int(r.Int()), Delayed: int(r.Int()), Dead: int(r.Int())}
	if since := r.Instant(); !since.IsZero() {
		t.Oldest = max(0, now.Sub(since))
	}
	t.NextSlot, t.Note = r.Instant(), r.Str()
	h := map[string]string{}
	for f := queue.ReplyOf(r.Next()); f.More(); {
		h[f.Str()] = f.Str()
	}
	t.Parked = parkedBy(r.Str())
	t.Set = readPolicy(h)
	t.Effective = t.Set.or(defaults)
	t.Known = h["ver"] != ""
	t.Out, t.Running = int(atoi(h["out"])), int(atoi(h["run"]))
	t.Paused, t.PausedUntil = paused(h, now)
	t.InARow, t.Counters = int(atoi(h["row"])), readCounters(h)
	return t
}

// parkedBy puts what a script says of a parked tenant, "field=value", into words; a colon before it
// says that the field is the downstream's.
func parkedBy(s string) string {
	if s == "" {
		return ""
	}
	field, value, _ := strings.Cut(s, "=")
	field, common := strings.CutPrefix(field, ":")
	var p DownstreamPolicy
	name := field
	for _, v := range append(downstreamTable.Of(&p), policyTable.Of(&p.Defaults)...) {
		if slices.Contains(strings.Fields(v.Key), field) {
			name = v.Name
		}
	}
	whose := ""
	if common {
		whose = "the downstream's "
	}
	return fmt.Sprintf("%s%s is %q, which cannot be read", whose, name, value)
}

// paused reads whether a tenant or a downstream is paused, and until when; the zero time means
// without an end.
func paused(h map[string]string, now time.Time) (is bool, until time.Time) {
	us := atoi(h["until"])
	if is = us > now.UnixMicro(); is && us < queue.Forever {
		until = queue.Instant(us)
	}
	return is, until
}
