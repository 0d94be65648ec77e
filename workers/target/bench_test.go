//go:build unix

package target

import (
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobshaper/jobshaper/shaper"
)

// BenchmarkProgramsBegin reports how long after their slots programs read the clock, beside what the
// departure log says of it, on a machine that is idle and on one that has twice as much to do as it
// can: go test ./workers/target -run '^$' -bench ProgramsBegin -benchtime 200x
func BenchmarkProgramsBegin(b *testing.B) {
	for _, load := range []string{"idle", "busy"} {
		for _, how := range []string{"at their slots", "ahead"} {
			b.Run(load+"/started "+how, func(b *testing.B) { programsBegin(b, load == "busy", how == "ahead") })
		}
	}
}

func programsBegin(b *testing.B, busy, ahead bool) {
	target, err := NewExec(ExecConfig{Argv: []string{"date", "+%s%N"}})
	if err != nil {
		b.Fatal(err)
	}
	h := target
	if !ahead {
		h = asynq.HandlerFunc(target.ProcessTask)
	}
	if busy {
		burn, err := NewExec(ExecConfig{Argv: sh("while :; do :; done"), KillDelay: time.Millisecond})
		if err != nil {
			b.Fatal(err)
		}
		for range 2 * runtime.NumCPU() {
			ctx := b.Context() // it ends before the cleanups
			done := make(chan struct{})
			go func() {
				defer close(done)
				_ = burn.ProcessTask(withTestInfo(ctx), asynq.NewTask("burn", nil))
			}()
			b.Cleanup(func() { <-done })
		}
	}
	p := newPool(b, h, 20, 0)
	var late, judged []time.Duration
	for _, id := range p.offer(b.N) {
		job := p.done(id)
		ns, err := strconv.ParseInt(strings.TrimSpace(string(job.Result)), 10, 64)
		p.must(err)
		late = append(late, time.Unix(0, ns).Sub(job.Slot))
	}
	p.must(p.queue.Admin().DepartureLog(b.Context(), 0, func(e shaper.LogEntry) error {
		if e.Began {
			judged = append(judged, e.Late)
		}
		return nil
	}))
	slices.Sort(late)
	slices.Sort(judged)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	b.ReportMetric(ms(late[len(late)/2]), "p50-ms")
	b.ReportMetric(ms(late[len(late)*99/100]), "p99-ms")
	b.ReportMetric(ms(late[len(late)-1]), "max-ms")
	b.ReportMetric(ms(judged[len(judged)-1]), "max-judged-ms")
	b.ReportMetric(0, "ns/op")
}
