package queue

import (
	"fmt"
	"strconv"
	"strings"
)

// Ticket is what travels through asynq: "wake up for this tenant". It was released for one job, and starts the tenant's oldest
// that is out; so it may be lost, doubled or late without harm, and jobs start in their order although tickets race.
type Ticket struct {
	Tenant  string
	ID      string // the job that it was released for
	Release int64  // how many tickets were released for that job
}

// String encodes the ticket, as ParseTicket reads it.
func (t Ticket) String() string { return fmt.Sprintf("%s %s %d", t.Tenant, t.ID, t.Release) }

// ParseTicket reads what String wrote.
func ParseTicket(s string) (Ticket, error) {
	f := strings.Split(s, " ")
	if len(f) != 3 {
		return Ticket{}, fmt.Errorf("ticket %.80q: want tenant, id and release number", s)
	}
	n, err := strconv.ParseInt(f[2], 10, 64)
	if err != nil || !IsName(f[0]) || !IsName(f[1]) {
		return Ticket{}, fmt.Errorf("ticket %.80q: want two names, and a whole number at its end", s)
	}
	return Ticket{Tenant: f[0], ID: f[1], Release: n}, nil
}
