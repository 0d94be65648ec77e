package top

import (
	"cmp"
	"slices"
)

// add adds what another process says.
func (t *Top) add(o Top) {
	t.Processes += o.Processes
	t.MaxError += o.MaxError
	t.Offers.add(o.Offers)
	t.Refusals.add(o.Refusals)
}

// add adds counts tenant by tenant. A tenant that is on only one list counts as 0 on the other,
// where its count is below the smallest that is listed.
func (l *List) add(o List) {
	l.All += o.All
	counts := map[string]int64{}
	for _, t := range append(l.Tenants, o.Tenants...) {
		counts[t.Name] += t.Count
	}
	l.Tenants = l.Tenants[:0]
	for name, n := range counts {
		l.Tenants = append(l.Tenants, Tenant{name, n})
	}
	slices.SortFunc(l.Tenants, func(a, b Tenant) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name))
	})
}

// Cut keeps the first n of each list.
func (t *Top) Cut(n int) {
	for _, l := range []*List{&t.Offers, &t.Refusals} {
		l.Tenants = l.Tenants[:min(n, len(l.Tenants))]
	}
}
