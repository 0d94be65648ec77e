package workers

import "time"

// pauses remembers which tenants were recently paused, and recalls starts that hold a slot from
// before: a slot may be granted some time before it comes, and nothing should start in it once the
// pause was acknowledged. A signal may overtake the answer that granted a slot, so it is
// remembered for a while. The zero value is ready; its owner guards it.
type pauses map[string]time.Time // tenant, "" for the whole downstream, to when its last pause was heard of

// pauseMemory is how long a pause is remembered. An answer that takes longer than this misses its
// slot by more than any tolerance, and the gate, which is asked for another one, knows of the pause
// itself.
const pauseMemory = 30 * time.Second

func (m *pauses) note(tenant string, at time.Time) {
	if *m == nil {
		*m = pauses{}
	}
	for t, old := range *m {
		if at.Sub(old) > pauseMemory {
			delete(*m, t)
		}
	}
	(*m)[tenant] = at
}

// check recalls s if it asked for its slot before a pause was heard of. That does nothing to a
// handler that has begun.
func (m pauses) check(s *start) {
	if s.asked.Before(m[s.grant.Tenant]) || s.asked.Before(m[""]) {
		s.recall()
	}
}
