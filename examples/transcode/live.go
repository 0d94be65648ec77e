package main

import (
	"fmt"
	"strings"
	"time"
)

const (
	liveColumns = 60               // bins in a row of bars
	liveWidth   = 18 + liveColumns // of the picture, in characters
	liveHeight  = 24               // lines that a terminal must have
)

// liveView draws a picture in place, below the lines that stay.
type liveView struct {
	lineView
	picture  string // what is drawn below the lines, to be overwritten
	lastNote string
}

// Write puts text among the lines that stay.
func (v *liveView) Write(p []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.replace(string(p), v.picture)
	return len(p), nil
}

func (v *liveView) begin() {}

func (v *liveView) step(name string, done, of int, as string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if done < of {
		v.replace("", fmt.Sprintf("  %-11s %d of %d %s\n", name, done, of, as))
		return
	}
	v.replace(fmt.Sprintf("  %-11s %d %s\n", name, of, as), "")
}

func (v *liveView) note(text string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.lastNote = text
}

func (v *liveView) draw(f frame) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.replace("", picture(f, v.lastNote))
}

// end leaves the last picture where it is.
func (v *liveView) end() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.picture = ""
}

// replace writes lines that stay, and then a picture, over the last picture, in one write so that
// nothing flickers.
func (v *liveView) replace(lines, picture string) {
	var b strings.Builder
	if n := strings.Count(v.picture, "\n"); n > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\r\x1b[J", n) // up to where it began, and clear what is below
	}
	b.WriteString(lines + picture)
	v.picture = picture
	_, _ = v.w.Write([]byte(b.String()))
}

// picture is what the farm does: how many wait, and arrivals against departures.
func picture(f frame, note string) string {
	// The first start falls into the middle of its bin, so that even starts look even.
	phase := f.begun
	if len(f.starts) > 0 {
		phase = f.starts[0].Add(-bin / 2)
	}
	row := func(times []time.Time) string {
		return strings.TrimRight(bars(times, phase, f.now, liveColumns), " ")
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n  %4.1f s   a column is 100 ms, the last is now; ▁ is one job, █ eight or more\n\n", f.now.Sub(f.begun).Seconds())
	for _, l := range f.lanes {
		depth := l.tenant.policy.Depth
		fmt.Fprintf(&b, "  %-8swaiting %s  %d of %d\n", l.tenant.name, meter(l.waiting, depth, liveColumns/2), l.waiting, depth)
		fmt.Fprintf(&b, "          offers  %s\n", row(l.offers))
		fmt.Fprintf(&b, "          starts  %s\n", row(l.starts))
		fmt.Fprintf(&b, "                  %d accepted, %d refused, %d done\n\n", l.accepted(), len(l.refusals), l.done)
	}
	fmt.Fprintf(&b, "  all     starts  %s\n", row(f.starts))
	fmt.Fprintf(&b, "                  %d in the last second, %d so far; %d of %d places busy\n",
		within(f.starts, f.now.Add(-time.Second), f.now), len(f.starts), f.running, places)
	fmt.Fprintf(&b, "\n  %.*s\n", liveWidth-2, note) // cut: a line that wraps would upset replace
	return b.String()
}
