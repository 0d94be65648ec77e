package model

import "math"

// Why nobody can say when a job will start.
const (
	NoteNone      = ""
	NotePaused    = "paused"     // with no end set
	NoteNoWorkers = "no_workers" // nobody would start it
	NoteInFlight  = "in_flight"  // that depends on how long other jobs run
)

// estimate says when jobs of a tenant will start, by timelines, pauses and the present backlogs,
// for one call that offers some. Numbers are doubles, as in the scripts.
type estimate struct {
	*Downstream
	t     *Tenant
	crowd []neighbour
	known bool // whether the crowd is
	line  *line

	// before, due and start are about the delayed job that was asked about last: how many fall due
	// before it, when it falls due, and when it starts.
	before  int64
	due     int64
	start   float64
	retry   int64 // when to ask again if there is no room; the same for all jobs of a call
	crowded bool
}

func (d *Downstream) estimate(t *Tenant) *estimate { return &estimate{Downstream: d, t: t, before: -2} }

// neighbour is a tenant that shares the downstream's rate, and represents `like` of them.
type neighbour struct {
	like, waiting, out, first, step, vt, weight float64
}

// line is a stretch of a batch's jobs: the first is computed, and those behind it lie on the line
// to the one that is spread places further, which is computed once there is a second.
type line struct {
	nth, at int64
	slope   float64
	known   bool // whether the slope is
}

const (
	spread = 25
	allOf  = 12 // up to so many tenants that share a rate are all looked at; of more,
	sample = 4  // so many of each book are, and the others are assumed to be like them
)

func (e *estimate) neighbours() []neighbour {
	if e.known {
		return e.crowd
	}
	e.known = true
	most := sample
	if e.Ready.Len()+e.Due.Len() <= allOf {
		most = allOf
	}
	for _, b := range []*Book{e.Ready, e.Due} {
		l := b.Lines()[:min(most, b.Len())]
		for _, line := range l {
			if o := e.Tenants[line.Name]; o != e.t {
				p := e.Limits(o)
				e.crowd = append(e.crowd, neighbour{float64(b.Len()) / float64(len(l)), float64(o.waiting()), float64(o.OutN),
					float64(max(e.Now, o.Timeline.Next, o.Until)), step(p.Rate), float64(max(e.VirtualTime, o.VirtualTime)), float64(p.Weight)})
			}
		}
	}
	return e.crowd
}

// shared is when the nth job of the tenant starts at the downstream's rate, whose next slot is
// first, and not before own, when its own timeline lets it. Before it go what is out, its tenant's
// jobs ahead of it, and of every other tenant the least of what it has, what its own rate lets pass
// until then, and what its weight earns it. The instant is on both sides of the equation, so it is
// approached from below.
func (e *estimate) shared(nth, own, first int64) int64 {
	vt := float64(max(e.VirtualTime, e.t.VirtualTime)) + float64(nth-1)*share/float64(e.Limits(e.t).Weight)
	at := own
	for range 16 {
		before := float64(int64(e.Out.Len()) + nth - 1)
		for _, o := range e.neighbours() {
			before += o.like * max(0, min(o.waiting, math.Ceil((vt-o.vt)*o.weight/share), math.Floor((float64(at)-o.first)/o.step)+1-o.out))
		}
		later := max(own, first+int64(math.Floor(before*step(e.Policy.Rate))))
		if later <= at {
			break
		}
		at = later
	}
	return at
}

// nth is when the nth of the jobs that wait starts; or 0, and why nobody can say.
func (e *estimate) nth(nth int64) (at int64, note string) {
	t := e.t
	paused := max(t.Until, e.Until)
	switch {
	case paused >= Forever:
		return 0, NotePaused
	case e.Alive < e.Now:
		return 0, NoteNoWorkers
	case nth > e.byTime(t):
		return 0, NoteInFlight
	}
	from, r := max(e.Now, paused), e.Limits(t).Rate
	own := func(nth int64) int64 {
		return max(from, t.Timeline.Earliest(r, e.Now, e.terms(t))) + int64(math.Floor(float64(t.OutN+nth-1)*step(r)))
	}
	if !e.Downstream.shared() {
		return own(nth), NoteNone
	}
	first := max(from, e.Timeline.Earliest(e.Policy.Rate, e.Now, e.terms(nil)))
	l := e.line
	if l == nil || nth < l.nth || nth >= l.nth+spread {
		e.line = &line{nth: nth, at: e.shared(nth, own(nth), first)}
		return e.line.at, NoteNone
	}
	if !l.known {
		l.slope, l.known = float64(e.shared(l.nth+spread, own(l.nth+spread), first)-l.at)/spread, true
	}
	return int64(math.Floor(float64(l.at) + float64(nth-l.nth)*l.slope)), NoteNone
}

// delayed is when a job starts that is not due before due. It joins the bucket behind what waits by
// then: what is there now and has not left, and what falls due before, perhaps much of it at about
// the same time. A job that is tried again comes to the front.
func (e *estimate) delayed(due int64, again bool) (at int64, note string) {
	if again {
		if at, note = e.nth(1); at > 0 {
			at = max(at, due)
		}
		return at, note
	}
	ahead := e.t.Later.until(due - 1)
	before, gap := int64(len(ahead)), step(e.Limits(e.t).Rate)
	if at, note = e.nth(e.t.waiting() + before + 1); at == 0 {
		return at, note
	}
	start := float64(max(at, due))
	if e.before == before-1 && e.due <= due { // right behind the previous one
		start = max(start, e.start+gap)
	} else {
		for i := int64(1); i <= before; i = max(i+1, int64(math.Floor(float64(i)*1.1))) {
			start = max(start, float64(ahead[before-i].At)+float64(i)*gap) // with i - 1 between them
		}
	}
	e.before, e.due, e.start = before, due, start
	return int64(math.Floor(start)), NoteNone
}

// untilRoom is how long it takes until a job leaves a full bucket, as far as that can be said: what
// keeps it full decides. At most a minute, since a pause may end and a policy change before.
func (e *estimate) untilRoom() int64 {
	if e.crowded {
		return e.retry
	}
	e.crowded = true
	at, note := e.nth(1)
	switch note {
	case NotePaused:
		e.retry = 10_000_000
	case NoteNoWorkers:
		e.retry = 5_000_000
	case NoteInFlight:
		e.retry = 1_000_000
	default:
		if e.t.waiting() == 0 && e.t.Later.Len() > 0 {
			at = max(at, e.t.Later.first().At)
		}
		wait := float64(at - e.Now)
		if wait < 1000 { // its turn came, and it has not left yet
			wait = max(step(e.Limits(e.t).Rate), 1000)
		}
		e.retry = int64(min(wait, 60_000_000))
	}
	return e.retry
}
