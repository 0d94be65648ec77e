package model

import (
	"time"

	"github.com/jobshaper/jobshaper/buckets"
)

// Forever is the end of a pause that has none.
const Forever int64 = 9e15

// Downstream is one downstream with all its tenants. Make it with New; Set its clock before each
// call, and never back. Its fields may be read. It is not safe for concurrent use.
type Downstream struct {
	Now      int64 // set by Set
	Policy   DownstreamPolicy
	Tenants  map[string]*Tenant
	Pools    map[string]*Pool
	Timeline buckets.Timeline // of the downstream's own rate
	Epoch    int64            // since which no grant was forgotten; 0 = none ever was
	Ahead    int64            // µs after Epoch before which the slots lie whose grants may have been forgotten
	Until    int64            // the whole downstream is paused until then
	Counts   map[string]int64 // what happened to jobs, by the names of the counters
	Log      []string         // the departure log, see log.go

	runs        map[string]int64 // jobs that pools run
	VirtualTime int64            // of fair queueing, see pick.go
	Due         *Book            // tenants by the instant at which their heads may leave
	Ready       *Book            // tenants whose time has come, by virtual time
	Out         *Book            // jobs whose tickets are out, as "tenant id", by the instant at which they come back
	Running     *Book            // jobs that run, as "tenant id", by the end of their leases

	Apart             *Book           // suspects in flight, as "tenant id", by Job.Suspect; see apart.go
	Fell              map[string]bool // pools that lost one of several jobs that they ran
	Turned, TurnUntil int64           // the last slot of the suspect that has the next turn, and until when

	ends   int   // of all tenants
	oldest *Book // tenants by the instant at which the first of their Ends is over

	refiling bool   // tenants are being filed anew, see file.go
	refiled  string // the last of them

	LastRelease             int64 // when a scheduler called last
	Sent, Pace              int64 // tickets out after that call, and thousandths of those that came lately; see credit.go
	SparedFrom, SparedUntil int64 // until then only leases that ended by SparedFrom are over, see release.go
	Places                  int64 // of the live pools, as the last beat found them
	Alive                   int64 // until when the last of them is believed to live

	Far   time.Duration // a round trip of the furthest of the live pools, as the last beat found them
	Calm  int64         // the lead does not get longer before that
	Reach time.Duration // by which the lead is longer than the policy's, before a changed policy bounds it
}

// Tenant is one tenant of a downstream: its bucket, its timeline and its jobs.
type Tenant struct {
	Name     string
	Policy   Policy // only what is set for this tenant; see Downstream.Limits
	Timeline buckets.Timeline
	Until    int64            // paused until then
	Jobs     map[string]*Job  // by id, including those in Ends
	Counts   map[string]int64 // as Downstream.Counts

	Back  *Book           // ids that wait and were out before, by acceptance; ahead of all others
	Fresh []string        // ids that wait and were never out, head first
	Later *Book           // ids that are not due, by the instant at which they are
	Outs  *Book           // ids whose tickets are out, by acceptance
	Ends  []*Job          // that ended, and are not forgotten, oldest first
	owned map[string]*Job // by token; those that run

	VirtualTime  int64
	OutN, RunN   int64 // tickets out, jobs running
	ThrottledRow int64 // starts in a row after which the downstream asked to slow down
	Took         int64 // µs that its jobs run, on average of the last eight or so; -1 = not known

	filed bool // ever: it is known to Redis

	// What was noted when it was filed last, see file.go.
	Busy   bool  // it had jobs that had not ended
	Turn   int64 // when its head was likely to leave
	ByTime int64 // the place in its bucket up to which jobs start by time alone
}

// Pool is a pool of workers.
type Pool struct {
	Places, Deadline int64         // it counts as gone after Deadline
	Trip             time.Duration // to Redis and back
}

// State is where a job is in its life.
type State string

// A job is in one of these states until it ends.
const (
	Unseen     State = "n" // waits, and was never out
	Delayed    State = "l" // not due yet, and was never out
	Waiting    State = "w" // waits, and was out before
	Out        State = "o" // a ticket was released for it
	Running    State = "r" // it was granted a slot
	Cancelling State = "c" // running, and cancelled
	Backoff    State = "z" // failed, and not due yet
	Dead       State = "x" // it is kept, and does not start again unless it is requeued
)

// How a job ends.
const (
	Done      State = "done"
	Cancelled State = "cancelled"
	Expired   State = "expired" // it waited too long
	Dropped   State = "dropped" // to make room
	Removed   State = "removed" // it was dead, and is forgotten
)

// Job is a job that was accepted.
type Job struct {
	Tenant, ID string
	Body, Call string        // what was offered, and by which Offer.Call
	Since      int64         // when it was accepted or is due; a µs apart for jobs of one call
	MaxWait    time.Duration // 0 = as the policy says
	State      State

	Releases  int64 // tickets that were released for it
	Starts    int64 // slots that it was granted, except those of starts that were called off
	Forgiven  int64 // starts that do not count against the maximum of attempts
	Crashes   int64 // leases that ended
	Suspect   int64 // 1 or 2: its worker vanished, and no start of it ended since; see apart.go
	Blamed    int64 // leases that ended, and it was to blame
	Throttles int64 // starts after which the downstream asked to slow down
	Granted   bool  // its last start has its slot, and is not known to have begun
	Token     string
	Slot      int64  // of its last start
	Next      string // "tenant/id" that its worker was given when it reported its end; "-"
	At        int64  // its instant in the book that it is in, or when it died or ended
	Over      int64  // until when it is known that it ended
}

// Ended reports whether the job has ended; a dead one that is kept has not.
func (j *Job) Ended() bool { return len(j.State) > 1 }

// Owned reports whether the job runs under token. A job that is not known does not.
func (j *Job) Owned(token string) bool {
	return j != nil && (j.State == Running || j.State == Cancelling) && j.Token == token
}

// New returns a downstream that holds nothing, at the instant now.
func New(now int64, p DownstreamPolicy) *Downstream {
	d := &Downstream{Now: now, Tenants: map[string]*Tenant{}, Pools: map[string]*Pool{}, Counts: map[string]int64{},
		runs: map[string]int64{}, Fell: map[string]bool{}, Apart: newBook(), Due: newBook(), Ready: newBook(), Out: newBook(), Running: newBook(), oldest: newBook()}
	d.SetDownstream(p)
	return d
}

// Set sets the clock.
func (d *Downstream) Set(now int64) { d.Now = now }

// Tenant returns a tenant, which is known from then on.
func (d *Downstream) Tenant(name string) *Tenant {
	t := d.Tenants[name]
	if t == nil {
		t = &Tenant{Name: name, Jobs: map[string]*Job{}, Counts: map[string]int64{}, Took: -1,
			Back: newBook(), Later: newBook(), Outs: newBook(), owned: map[string]*Job{}}
		d.Tenants[name] = t
	}
	return t
}

// Job returns a job that is known, or nil.
func (d *Downstream) Job(tenant, id string) *Job {
	if t := d.Tenants[tenant]; t != nil {
		return t.Jobs[id]
	}
	return nil
}

// Restart is a restart of Redis that forgot nothing that the model knows of: but since a grant may
// have been forgotten, a tenant whose next departure is near waits an interval, and leases do not
// end at once.
func (d *Downstream) Restart() {
	d.Ahead = d.forgotten()
	d.Epoch = d.Now
	if d.shared() {
		d.Timeline = d.Timeline.Settled(d.Policy.Rate, d.Now, d.terms(nil))
	}
	d.log("i")
}

func (d *Downstream) count(t *Tenant, what string) {
	d.Counts[what]++
	t.Counts[what]++
}

// inFlight is how many tickets are out or jobs running.
func (d *Downstream) inFlight() int64 { return int64(d.Out.Len() + d.Running.Len()) }
func (t *Tenant) inFlight() int64     { return t.OutN + t.RunN }
