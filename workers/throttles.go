package workers

import (
	"sync"

	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/shaper"
)

// throttles remembers which tenants' downstream lets nothing through, so that the log says so once,
// and says once that it is over. Other pools may have seen what happened in between. The zero value
// is ready; it is safe for concurrent use.
type throttles struct {
	mu sync.Mutex
	// row has the tenants that the log told of, each with its latest number of throttled starts in
	// a row, as far as this pool has heard.
	row map[string]int
}

// note records that a start ended; row is how many starts of its tenant were throttled in a row, 0
// if this one was not. It tells whether an episode is over, and whether one has begun: both, where
// what came in between was not seen here.
func (m *throttles) note(tenant string, row int) (over, begun bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	last, on := m.row[tenant]
	if over = on && row < last; over {
		delete(m.row, tenant)
	}
	if row < shaper.ThrottledFor {
		return over, false
	}
	if m.row == nil {
		m.row = map[string]int{}
	}
	m.row[tenant] = row
	return over, over || !on
}

// tellThrottles logs when the downstream begins to let nothing of a tenant through, and when that
// is over.
func (p *Pool) tellThrottles(tenant string, f queue.Finish, end queue.Finished) {
	if end.InARow == 0 && (end.Became == "stale" || end.Became == "cancelled" || f.Began == queue.NeverBegan ||
		f.Ending == queue.EndBack || f.Ending == queue.EndThrottled || f.Ending == queue.EndThrottledAll) {
		return // it says nothing about the downstream, or is a repeated answer
	}
	over, begun := p.throttles.note(tenant, end.InARow)
	if over {
		p.log.Info("the downstream lets jobs through again", "tenant", tenant)
	}
	if begun {
		p.log.Warn("the downstream lets nothing through: start after start is throttled", "tenant", tenant,
			"in_a_row", end.InARow, "err", f.Text)
	}
}
