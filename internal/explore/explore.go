package explore

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"
)

// Report is what an exploration has found.
type Report struct {
	States, Transitions int
	Depth               int           // steps from the beginning to the furthest state
	Complete            bool          // every state that can be reached was
	Worst               time.Duration // the longest that it took until all had ended once nothing went wrong any more
	Compared            int           // states that were reached in two ways and compared, see alike
	Broken              string        // the promise that is broken; "" = none
	Trace               []string      // the shortest way there, in words
}

// node is a state that was reached.
type node struct {
	parent int32
	by     step
	fair   int32 // where it goes on from here if nothing goes wrong; -1 = nothing is left to do
	takes  int64 // µs that this step takes
	done   bool  // its successors are known
}

type explorer struct {
	s     *Scenario
	nodes []node
	known map[key]int32
	r     Report
}

// child is a state that follows another one.
type child struct {
	by    step
	w     *world // nil: there is no step
	key   key
	takes int64
	fair  bool
	wrong string
}

const (
	chunk    = 512  // worlds that are followed before what came of them is entered
	runs     = 2000 // of the states whose successors were not looked at, how many are played to their end
	patience = 5000 // steps of such a play
	sampled  = 50   // of so many transitions one is compared, if it leads to a known state
)

// Explore follows every step from every state, breadth first, until there are no new states, or
// most of them are reached (0 = no bound). It judges each transition, and from each state it goes
// on as if nothing went wrong any more: then all that was accepted must end, in time.
func Explore(s Scenario, most int) Report {
	e := &explorer{s: &s, known: map[key]int32{}}
	w := newWorld(&s)
	level := []entry{{0, w}}
	e.known[w.key()] = 0
	e.nodes = append(e.nodes, node{parent: -1, fair: -1})
	for len(level) > 0 && e.r.Broken == "" && (most == 0 || len(e.nodes) < most) {
		var next []entry
		for len(level) > 0 && e.r.Broken == "" && (most == 0 || len(e.nodes) < most) {
			part := level[:min(chunk, len(level))]
			level = level[len(part):]
			for i, children := range e.follow(part) {
				e.enter(part[i], children, &next)
			}
		}
		if level = append(level, next...); len(next) > 0 {
			e.r.Depth++
		}
	}
	e.r.States, e.r.Complete = len(e.nodes), len(level) == 0
	if e.r.Broken == "" {
		e.ends()
	}
	if e.r.Broken == "" {
		e.plays(level)
	}
	return e.r
}

// entry is a state whose successors are to be looked at.
type entry struct {
	id int32
	w  *world
}

// follow computes the successors of some states, on all cores.
func (e *explorer) follow(part []entry) [][]child {
	all := make([][]child, len(part))
	var group sync.WaitGroup
	cores := runtime.GOMAXPROCS(0)
	for n := range cores {
		group.Go(func() {
			for i := n; i < len(part); i += cores {
				all[i] = successors(part[i].w)
			}
		})
	}
	group.Wait()
	return all
}

func successors(w *world) (all []child) {
	steps := w.steps()
	fair, ok := goesOn(steps)
	for _, s := range steps {
		c := w.clone()
		wrong := c.try(s)
		k := child{by: s, w: c, wrong: wrong, takes: c.now - w.now, fair: ok && s == fair}
		if wrong == "" {
			k.key = c.key()
		}
		all = append(all, k)
	}
	if !ok {
		if wrong := w.stuck(); wrong != "" {
			all = append(all, child{wrong: wrong})
		}
	}
	return all
}

// try takes a step, and returns what it broke.
func (w *world) try(s step) (wrong string) {
	defer func() {
		if p := recover(); p != nil {
			wrong = fmt.Sprint("the model panics: ", p)
		}
	}()
	w.do(s)
	return w.seen.broken
}

// stuck says which job has not ended although nothing is left to do.
func (w *world) stuck() string {
	for _, f := range w.seen.fates {
		if f.accepted && !f.mayGo && !over(w.d.Job(f.tenant, f.id)) {
			return fmt.Sprintf("%s has not ended, and nothing is left to do", f.id)
		}
	}
	return ""
}

// enter enters the successors of a state.
func (e *explorer) enter(from entry, children []child, next *[]entry) {
	if e.r.Broken != "" {
		return
	}
	e.nodes[from.id].done = true
	for _, c := range children {
		e.r.Transitions++
		if c.wrong != "" {
			e.r.Broken = c.wrong
			if c.w == nil {
				e.r.Trace = e.trace(from.id, nil)
			} else {
				e.r.Trace = e.trace(from.id, &c.by)
			}
			return
		}
		id, known := e.known[c.key]
		if !known {
			id = int32(len(e.nodes))
			e.known[c.key] = id
			e.nodes = append(e.nodes, node{parent: from.id, by: c.by, fair: -1})
			*next = append(*next, entry{id, c.w})
		} else if e.r.Transitions%sampled == 0 {
			if e.alike(id, c.w); e.r.Broken != "" {
				e.r.Trace = slices.Concat([]string{"one way:"}, e.trace(id, nil), []string{"another:"}, e.trace(from.id, &c.by))
				return
			}
		}
		if c.fair {
			e.nodes[from.id].fair, e.nodes[from.id].takes = id, c.takes
		}
	}
}

// alike checks that a state that was reached in two ways goes on in the same way: that keys tell
// apart what has to be.
func (e *explorer) alike(id int32, w *world) {
	e.r.Compared++
	one, other := outcomes(e.replay(id)), outcomes(w)
	for _, o := range [][2]map[string]string{{one, other}, {other, one}} {
		for to, words := range o[0] {
			if _, same := o[1][to]; !same {
				e.r.Broken = "two states have the same key and go on in different ways: " + words
			}
		}
	}
}

// outcomes is what each step leads to, with the step in words.
func outcomes(w *world) map[string]string {
	all := map[string]string{}
	for _, s := range w.steps() {
		c := w.clone()
		words := c.tells(s)
		all[fmt.Sprint(s.what, s.how, s.lost, c.key())] = words
	}
	return all
}

// replay returns the state of a node.
func (e *explorer) replay(id int32) *world {
	w := newWorld(e.s)
	for _, s := range e.way(id) {
		w.do(s)
	}
	return w
}

// way is the steps to a state.
func (e *explorer) way(id int32) (steps []step) {
	for ; e.nodes[id].parent >= 0; id = e.nodes[id].parent {
		steps = append(steps, e.nodes[id].by)
	}
	slices.Reverse(steps)
	return steps
}
