package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// view shows the user what happens. Its methods may be called from any goroutine.
type view interface {
	io.Writer                                  // takes log lines
	title(tenants []tenant)                    // what this is about; called first
	fact(name, value string)                   // one line about this run
	step(name string, done, of int, as string) // progress of something: "7 of 9 …", and at last "9 …"
	begin()                                    // the farm runs
	draw(f frame)                              // what the farm does now, called every bin
	note(text string)                          // something that has happened
	end()                                      // draw is not called any more
}

// newView returns a live picture on a terminal that is large enough, and otherwise lines.
func newView(w io.Writer) view {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb" {
		if w, h, err := term.GetSize(int(f.Fd())); err == nil && w >= liveWidth && h >= liveHeight {
			return &liveView{lineView: lineView{w: f}}
		}
	}
	return &lineView{w: w}
}

// lineView writes a line every second.
type lineView struct {
	w io.Writer

	mu      sync.Mutex // guards w and what follows
	tenants []tenant
	seconds int // lines drawn
}

func (v *lineView) Write(p []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.w.Write(p)
}

func (v *lineView) title(tenants []tenant) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.tenants = tenants
	fmt.Fprintf(v.w, "Transcoding farm: the transcoder must not see more than %g jobs a second.\n\n", policy.Rate.Per(time.Second))
	for _, t := range tenants {
		fmt.Fprintf(v.w, "  %-11s %d × %d files; depth %d, rate %g/s, weight %d; refused, %s\n",
			t.name, t.bursts, t.burst, t.policy.Depth, t.policy.Rate.Per(time.Second), t.policy.Weight, t.manner())
	}
}

func (v *lineView) fact(name, value string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	fmt.Fprintf(v.w, "  %-11s %s\n", name, value)
}

func (v *lineView) step(name string, done, of int, as string) {
	if done == of {
		v.fact(name, fmt.Sprint(of, " ", as))
	}
}

func (v *lineView) note(text string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	fmt.Fprintf(v.w, "       %s\n", text)
}

// begin writes the head of the table. Its columns are those of line.
func (v *lineView) begin() {
	v.mu.Lock()
	defer v.mu.Unlock()
	names, columns := "\n      ", "      "
	for _, t := range v.tenants {
		names += fmt.Sprintf(" │ %-29s", t.name)
		columns += fmt.Sprintf(" │%8s%7s%8s%7s", "waiting", "offers", "refused", "starts")
	}
	fmt.Fprintf(v.w, "%s │ all\n%s │ starts\n", names, columns)
}

func (v *lineView) draw(f frame) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for ; !f.now.Before(f.begun.Add(time.Duration(v.seconds+1) * time.Second)); v.seconds++ {
		from := f.begun.Add(time.Duration(v.seconds) * time.Second)
		v.line(f, from, from.Add(time.Second))
	}
}

func (v *lineView) line(f frame, from, to time.Time) {
	var b strings.Builder
	fmt.Fprintf(&b, "%4d s", v.seconds+1)
	for _, l := range f.lanes {
		fmt.Fprintf(&b, " │%8s%7d%8d%7d", fmt.Sprintf("%d/%d", l.waiting, l.tenant.policy.Depth),
			within(l.offers, from, to), within(l.refusals, from, to), within(l.starts, from, to))
	}
	fmt.Fprintf(&b, " │%7d\n", within(f.starts, from, to))
	_, _ = io.WriteString(v.w, b.String())
}

func (v *lineView) end() {}
