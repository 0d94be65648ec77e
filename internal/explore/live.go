package explore

import (
	"fmt"
	"time"
)

// ends checks that from every state whose successors are known all comes to an end, and in time, if
// nothing goes wrong from then on. What happens next then is one of the steps that were followed,
// so nothing needs to be played: it is a way through what is known.
func (e *explorer) ends() {
	const unknown, open = -1, -2
	left := make([]int64, len(e.nodes)) // µs until all has ended
	for i := range left {
		left[i] = unknown
	}
	for i := range e.nodes {
		var way []int32
		id := int32(i)
		for id >= 0 && left[id] == unknown {
			left[id] = open
			way = append(way, id)
			if e.nodes[id].fair < 0 {
				break
			}
			id = e.nodes[id].fair
		}
		last := way
		if len(last) == 0 {
			continue
		}
		end := last[len(last)-1]
		switch to := e.nodes[end].fair; {
		case to < 0:
			left[end] = 0
			way = way[:len(way)-1]
		case left[to] == open:
			e.r.Broken, e.r.Trace = "nothing goes wrong any more, and it goes on for ever", e.traceOn(end, 40)
			return
		}
		for n := len(way) - 1; n >= 0; n-- {
			at := &e.nodes[way[n]]
			left[way[n]] = left[at.fair] + at.takes
		}
	}
	e.late(left)
}

// late notes the longest that it takes from any state, and whether that is too long.
func (e *explorer) late(left []int64) {
	worst := 0
	for i, us := range left {
		if us > left[worst] {
			worst = i
		}
	}
	e.r.Worst = time.Duration(left[worst]) * time.Microsecond
	for i, us := range left {
		if within := e.s.Within; within > 0 && us > within.Microseconds() {
			e.r.Broken = fmt.Sprintf("nothing goes wrong any more, and it takes %v, more than %v", time.Duration(us)*time.Microsecond, within)
			e.r.Trace = e.traceOn(int32(i), 60)
			return
		}
	}
}

// plays plays states to their end whose successors nobody looked at.
func (e *explorer) plays(level []entry) {
	every := max(1, len(level)/runs)
	for i := 0; i < len(level); i += every {
		w, from := level[i].w, level[i].w.now
		for n := 0; ; n++ {
			s, ok := goesOn(w.steps())
			if !ok {
				e.r.Broken = w.stuck()
				break
			}
			w = w.clone()
			if e.r.Broken = w.try(s); e.r.Broken == "" && n > patience {
				e.r.Broken = "nothing goes wrong any more, and it goes on for ever"
			}
			if e.r.Broken != "" {
				break
			}
		}
		took := time.Duration(w.now-from) * time.Microsecond
		if e.r.Worst = max(e.r.Worst, took); e.s.Within > 0 && took > e.s.Within && e.r.Broken == "" {
			e.r.Broken = fmt.Sprintf("nothing goes wrong any more, and it takes %v, more than %v", took, e.s.Within)
		}
		if e.r.Broken != "" {
			e.r.Trace = e.traceOn(level[i].id, 60)
			return
		}
	}
}
