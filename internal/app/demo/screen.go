package demo

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// screen draws on a terminal, again and again in the same place, or else prints each chart once.
type screen struct {
	out   io.Writer
	live  bool
	lines int // of the last frame
}

func (s *screen) say(format string, args ...any) { fmt.Fprintf(s.out, format, args...) }

func (s *screen) style(code, text string) string {
	if !s.live || os.Getenv("NO_COLOR") != "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (s *screen) bold(text string) string  { return s.style("1", text) }
func (s *screen) red(text string) string   { return s.style("31", text) }
func (s *screen) green(text string) string { return s.style("32", text) }
func (s *screen) dim(text string) string   { return s.style("2", text) }

func (s *screen) begin(title string) {
	s.say("\n%s\n", s.bold(title))
	s.lines = 0
}

// frame draws the current chart over the last one.
func (s *screen) frame(v view) {
	if !s.live {
		return
	}
	if s.lines > 0 {
		s.say("\x1b[%dA", s.lines)
	}
	text := s.chart(v)
	s.lines = strings.Count(text, "\n")
	s.say("%s", strings.ReplaceAll(text, "\n", "\x1b[K\n"))
}

// end prints the last chart where there were no frames.
func (s *screen) end(v view) {
	if !s.live {
		s.say("%s", s.chart(v))
	}
}

// width is how many columns a chart shows: the last ones. With its labels it fits 80.
const width = 62

// chart draws arrivals and requests on one scale, so that a burst and its shaped flow can be
// compared.
func (s *screen) chart(v view) string {
	top := max(slices.Max(v.arrived), slices.Max(v.served), slices.Max(v.failed), 1)
	var b strings.Builder
	row := func(label string, values []int, top int, paint func(string) string, note string) {
		from := max(0, len(values)-width)
		bar := sparkline(values[from:], top)
		fmt.Fprintf(&b, "  %-9s %s\n", label, paint(bar)+s.dim(strings.Repeat(" ", width-len([]rune(bar)))+" "+note))
	}
	as := func(text string) string { return text }
	row("offered", v.arrived, top, as, fmt.Sprint(v.total))
	row("served", v.served, top, s.green, fmt.Sprint(v.ok))
	row("failed", v.failed, top, s.red, fmt.Sprint(v.lost))
	row("waiting", v.waiting, max(slices.Max(v.waiting), 1), s.dim, fmt.Sprint(v.waiting[len(v.waiting)-1]))
	fmt.Fprintf(&b, "  %-9s %s\n", "gaps", gapText(v.gaps))
	return b.String()
}

// sparkline draws values as bars of 8 heights; whatever is not 0 shows.
func sparkline(values []int, top int) string {
	const bars = " ▁▂▃▄▅▆▇█"
	heights := []rune(bars)
	out := make([]rune, len(values))
	for i, v := range values {
		h := (v*8 + top/2) / top
		if v > 0 {
			h = max(h, 1)
		}
		out[i] = heights[min(h, 8)]
	}
	return string(out)
}

// gapText tells how far apart requests were.
func gapText(sorted []time.Duration) string {
	if len(sorted) == 0 {
		return "-"
	}
	return fmt.Sprintf("min %s · p50 %s · max %s", ms(sorted[0]), ms(sorted[len(sorted)/2]), ms(sorted[len(sorted)-1]))
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond)) }

// summary compares both acts, and says what the departure log tells about the second.
func (s *screen) summary(plain, even view, checked string) {
	s.say("\n%s\n", s.bold("In short"))
	s.say("  %-28s %12s %12s\n", "", "without", "with shaper")
	row := func(label, a, b string) { s.say("  %-28s %12s %12s\n", label, a, b) }
	of := func(v view) string { return fmt.Sprintf("%d of %d", v.ok, v.total) }
	row("jobs served", of(plain), of(even))
	row("outages caused", fmt.Sprint(plain.outages), fmt.Sprint(even.outages))
	row("most requests in 100 ms", fmt.Sprint(busiest(plain)), fmt.Sprint(busiest(even)))
	row("smallest gap", leastGap(plain), leastGap(even))
	row("last job sent after", seconds(plain.took), seconds(even.took))
	s.say("\n  %s\n", checked)
	s.say(`
Now with something of your own:
  shaper run --rate 10/s --total-rate 50/s --exec 'echo {payload.text}'
  enqueue hello '{"text":"world"}'
`)
}

func leastGap(v view) string {
	if len(v.gaps) == 0 {
		return "-"
	}
	return ms(v.gaps[0])
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// busiest is the most requests that any column has.
func busiest(v view) int {
	most := 0
	for i := range v.served {
		most = max(most, v.served[i]+v.failed[i])
	}
	return most
}
