package shaper

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/again"
	"github.com/jobshaper/jobshaper/internal/queue"
)

// BookFault is one kind of fault in the books of a downstream, which say where each job is, how
// many are in flight, and which tenants have something to start. Every script leaves the books
// right, so a fault means that a write was lost, as in a failover, or made by hand.
type BookFault struct {
	Kind   string // see bookFaults
	Count  int    // how many there are
	Tenant string // of one of them; empty = the downstream's own
	Of     string // the job of that one, or what else it is about
}

// bookFaults says by kind what is wrong, and what becomes of it once it is mended.
var bookFaults = map[string]struct{ wrong, mended string }{
	"waiting":   {"in no bucket, and would never have started", "back in its place"},
	"delayed":   {"due later, and nothing would have brought it back", "comes back when it is due, or after its longest backoff"},
	"out":       {"out on a ticket that nobody watched", "back at the front"},
	"running":   {"running without a lease, perhaps for ever", "has a lease, which ends unless its worker extends it"},
	"dead":      {"dead, but not listed among the dead", "listed"},
	"state":     {"without a state, or with an outdated one", "has the one for where it is"},
	"stray":     {"listed where it was not, or twice", "no longer listed there"},
	"body":      {"gone except for its name: Redis has lost the job", "forgotten; offer it again"},
	"ended":     {"ended, but kept as if it waited", "forgotten, except for how it ended"},
	"count":     {"wrong count of jobs in flight", "counted anew"},
	"places":    {"wrong count of a pool's running jobs", "counted anew"},
	"filed":     {"tenant with something to start, at which no scheduler would have looked in time", "filed"},
	"malformed": {"listed as in flight, and names no job", "no longer listed"},
	"parked":    {"tenant parked, since a field of it cannot be read", "parked until that field is set right"},
	"index":     {"tenant taken for idle while it was busy, or the other way round", "indexed"},
}

// String says what was wrong.
func (f BookFault) String() string {
	return fmt.Sprintf("%d × %s (%s)", f.Count, bookFaults[f.Kind].wrong, f.Example())
}

// Mended says what became of it by mending.
func (f BookFault) Mended() string { return bookFaults[f.Kind].mended }

// parked reports whether f is no fault of the books, and nothing mends it: see Admin.Tenant.
func (f BookFault) parked() bool { return f.Kind == "parked" }

// Example names one of them.
func (f BookFault) Example() string {
	return strings.TrimSpace(cmp.Or(f.Tenant, "the downstream") + " " + f.Of)
}

// Books looks at every job of every known tenant, and returns what is wrong with the books; with
// mend it puts that right. A worker keeps a job that the books had lost, and no job starts twice or
// earlier because of it. Jobs may come and go meanwhile.
func (a *Admin) Books(ctx context.Context, mend bool) ([]BookFault, error) {
	faults, err := (&bookkeeper{q: a.q, mend: mend, all: true}).pass(ctx, time.Time{})
	if mend {
		faults = slices.DeleteFunc(faults, BookFault.parked)
	}
	return faults, err
}

// bookkeeper compares the books, and mends what differs. Its scripts handle at most a batch; all
// loops are here.
type bookkeeper struct {
	q    queue.Queue
	mend bool
	// all looks at every job of every known tenant. Without it only tenants that are or were lately
	// busy are looked at, and their jobs only where sizes and counts differ.
	all   bool
	pause time.Duration // between two calls, so that Redis serves others

	faults map[string]*BookFault
	seen   map[[3]string]bool // a fault may be met twice
}

// pass goes through the books once. since is when the last pass began: a tenant that became idle
// later is looked at too, since a job that was lost may have been its last. What pass found it
// returns even with an error.
func (b *bookkeeper) pass(ctx context.Context, since time.Time) ([]BookFault, error) {
	b.faults, b.seen = map[string]*BookFault{}, map[[3]string]bool{}
	err := b.tenants(ctx, since)
	if err == nil {
		_, err = b.compare(ctx, b.all, nil) // when jobs are back in their places
	}
	kinds := slices.Sorted(maps.Keys(b.faults))
	out := make([]BookFault, len(kinds))
	for i, k := range kinds {
		out[i] = *b.faults[k]
	}
	return out, err
}

func (b *bookkeeper) found(kind, tenant, of string) {
	if b.seen[[3]string{kind, tenant, of}] {
		return
	}
	b.seen[[3]string{kind, tenant, of}] = true
	f := b.faults[kind]
	if f == nil {
		f = &BookFault{Kind: kind, Tenant: tenant, Of: of}
		b.faults[kind] = f
	}
	f.Count++
}

func (b *bookkeeper) tenants(ctx context.Context, since time.Time) error {
	names, err := b.names(ctx, since)
	if err != nil {
		return err
	}
	for part := range slices.Chunk(names, queue.Batch/2) { // a whole batch would take Redis more than a millisecond
		differ := part
		if !b.all {
			if differ, err = b.compare(ctx, false, part); err != nil {
				return err
			}
		}
		for _, tenant := range differ {
			if err := b.audit(ctx, tenant); err != nil {
				return err
			}
		}
		if len(differ) > 0 {
			if _, err := b.compare(ctx, true, differ); err != nil {
				return err
			}
		}
	}
	return nil
}

// names returns the tenants to look at. A tenant that is missing from the index of tenants has
// something in another book.
func (b *bookkeeper) names(ctx context.Context, since time.Time) ([]string, error) {
	set := map[string]bool{}
	lowest := "-inf"
	if !b.all {
		lowest = strconv.FormatInt(since.UnixMicro(), 10)
	}
	for _, book := range []struct{ key, lowest string }{
		{b.q.TenantsKey(), lowest}, {b.q.DueKey(), "-inf"}, {b.q.ReadyKey(), "-inf"}, {b.q.OutKey(), "-inf"}, {b.q.RunKey(), "-inf"},
	} {
		const page = 500
		for at := int64(0); ; at += page {
			l, err := b.q.RDB.ZRangeByScore(ctx, book.key, &redis.ZRangeBy{Min: book.lowest, Max: "+inf", Offset: at, Count: page}).Result()
			if err != nil {
				return nil, queue.StoreErr("list tenants", err)
			}
			for _, member := range l {
				tenant, _, _ := strings.Cut(member, " ")
				set[tenant] = true
			}
			if len(l) < page {
				break
			}
			if err := b.rest(ctx); err != nil {
				return nil, err
			}
		}
	}
	return slices.Sorted(maps.Keys(set)), nil
}

// rest waits between two calls.
func (b *bookkeeper) rest(ctx context.Context) error {
	if b.pause > 0 {
		again.Sleep(ctx, b.pause)
	}
	return ctx.Err()
}

// compare compares sizes and counts, see internal/queue/lua/compare.lua, and returns the tenants
// whose jobs must be looked at.
func (b *bookkeeper) compare(ctx context.Context, sure bool, tenants []string) (differ []string, err error) {
	args := []any{queue.Flag(b.mend), queue.Flag(sure)}
	for _, t := range tenants {
		args = append(args, t)
	}
	v, err := b.q.Run(ctx, queue.CompareScript, "compare the books", args...)
	if err != nil {
		return nil, err
	}
	for r := queue.ReplyOf(v); r.More(); {
		kind, tenant, of := r.Str(), r.Str(), r.Str()
		switch kind {
		case "jobs":
			differ = append(differ, tenant)
		case "parked":
			b.found(kind, tenant, parkedBy(of))
		default:
			b.found(kind, tenant, of)
		}
	}
	return differ, b.rest(ctx)
}

// audit looks at all jobs of a tenant and all entries of its books.
func (b *bookkeeper) audit(ctx context.Context, tenant string) error {
	none := func(string) {}
	for _, what := range []string{"lines", "back", "later", "outs", "dead"} {
		if err := b.look(ctx, tenant, what, none); err != nil {
			return err
		}
	}
	list, err := b.list(ctx, tenant)
	if err != nil {
		return err
	}
	suspects := map[string]bool{} // jobs in no book, or twice in the list
	if err := b.look(ctx, tenant, "jobs", func(id string) {
		if list.count(id) == 0 {
			suspects[id] = true
		}
	}); err != nil {
		return err
	}
	if len(suspects) == 0 && !list.doubles {
		return nil
	}
	// Jobs came and went meanwhile: believe only what a second look confirms.
	if list, err = b.list(ctx, tenant); err != nil {
		return err
	}
	maps.DeleteFunc(suspects, func(id string, _ bool) bool { return list.count(id) > 0 })
	if list.doubles {
		if err := b.look(ctx, tenant, "waits", func(id string) {
			if list.count(id) > 1 {
				suspects[id] = true
			}
		}); err != nil {
			return err
		}
	}
	for part := range slices.Chunk(slices.Sorted(maps.Keys(suspects)), 2) { // each may walk over a list
		args := []any{}
		for _, id := range part {
			args = append(args, id)
		}
		if _, err := b.call(ctx, tenant, "ids", none, args...); err != nil {
			return err
		}
	}
	return nil
}

// look has internal/queue/lua/mend.lua go through one kind of entries, and calls each with the ids
// that it returns.
func (b *bookkeeper) look(ctx context.Context, tenant, what string, each func(id string)) error {
	for at := "0"; ; {
		var err error
		if at, err = b.call(ctx, tenant, what, each, at); err != nil || at == "0" {
			return err
		}
	}
}

func (b *bookkeeper) call(ctx context.Context, tenant, what string, each func(id string), args ...any) (goesOn string, err error) {
	v, err := b.q.Run(ctx, queue.MendScript, "mend the books", append([]any{queue.Flag(b.mend), tenant, what}, args...)...)
	if err != nil {
		return "", err
	}
	r := queue.ReplyOf(v)
	goesOn = r.Str()
	for f := queue.ReplyOf(r.Next()); f.More(); {
		kind, id := f.Str(), f.Str()
		b.found(kind, tenant, id)
	}
	for ids := queue.ReplyOf(r.Next()); ids.More(); {
		each(ids.Str())
	}
	return goesOn, b.rest(ctx)
}

// idList is a list of ids that may be long: it takes eight bytes for each.
type idList struct {
	sums    []uint64 // sorted
	doubles bool
}

func (b *bookkeeper) list(ctx context.Context, tenant string) (l idList, err error) {
	err = b.look(ctx, tenant, "waits", func(id string) { l.sums = append(l.sums, sum64(id)) })
	slices.Sort(l.sums)
	for i := 1; i < len(l.sums); i++ {
		l.doubles = l.doubles || l.sums[i] == l.sums[i-1]
	}
	return l, err
}

// count is how often an id is in the list.
func (l idList) count(id string) (n int) {
	at, _ := slices.BinarySearch(l.sums, sum64(id))
	for at+n < len(l.sums) && l.sums[at+n] == sum64(id) {
		n++
	}
	return n
}

func sum64(id string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id)) // never fails
	return h.Sum64()
}
