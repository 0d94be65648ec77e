package precise

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// lateness sleeps to n deadlines, some on, some between milliseconds, and returns
// how late each was met, in order of size.
func lateness(n int, sleepUntil func(time.Time)) []time.Duration {
	late := make([]time.Duration, n)
	for i := range late {
		deadline := time.Now().Add(time.Duration(rand.Int64N(int64(5 * time.Millisecond))))
		sleepUntil(deadline)
		late[i] = time.Since(deadline)
	}
	slices.Sort(late)
	return late
}

func TestNeverEarly(t *testing.T) {
	t.Parallel() // it waits
	n := 1000
	if testing.Short() {
		n = 100
	}
	late := lateness(n, func(deadline time.Time) {
		if err := SleepUntil(t.Context(), deadline); err != nil {
			t.Error(err)
		}
	})
	if late[0] < 0 {
		t.Errorf("woke %v before the deadline", -late[0])
	}
	// For the reader only: how late depends on the machine and what else it does. BenchmarkLateness
	// compares it with time.Sleep.
	t.Logf("lateness of SleepUntil: p50 %v, p99 %v, max %v", late[n/2], late[n*99/100], late[n-1])
}

func TestNeverEarlyAmongMany(t *testing.T) {
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			for range 20 {
				deadline := time.Now().Add(time.Duration(rand.Int64N(int64(3 * time.Millisecond))))
				if err := SleepUntil(t.Context(), deadline); err != nil {
					t.Error(err)
				}
				if early := time.Until(deadline); early > 0 {
					t.Errorf("woke %v before the deadline", early)
				}
			}
		})
	}
	wg.Wait()
}

func TestContext(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := SleepUntil(ended, time.Now().Add(-time.Hour)); !errors.Is(err, context.Canceled) {
		t.Errorf("ended context, past deadline: %v, want context.Canceled", err)
	}
	if err := SleepUntil(t.Context(), time.Now().Add(-time.Hour)); err != nil {
		t.Errorf("past deadline: %v, want nil", err)
	}

	// The test's own timeout is the assertion that the cancellation is seen at all.
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error)
	go func() { result <- SleepUntil(ctx, time.Now().Add(time.Hour)) }()
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled while asleep: %v, want context.Canceled", err)
	}
}

func TestContextEndsDuringTheExactWait(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond/2)
	defer cancel()
	deadline := time.Now().Add(spread)
	// Which of the two comes first to the caller is the scheduler's business; a nil
	// before the deadline is not.
	if err := SleepUntil(ctx, deadline); err == nil && time.Now().Before(deadline) {
		t.Error("nil before the deadline")
	}
}

func TestInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, d := range []time.Duration{time.Nanosecond, time.Millisecond, time.Hour} {
			deadline := time.Now().Add(d)
			if err := SleepUntil(t.Context(), deadline); err != nil || !time.Now().Equal(deadline) {
				t.Errorf("%v: woke at %v with %v, want exactly %v", d, time.Now(), err, deadline)
			}
		}
	})
}

func BenchmarkLateness(b *testing.B) {
	for _, way := range []struct {
		name  string
		sleep func(time.Time)
	}{
		{"SleepUntil", func(t time.Time) { _ = SleepUntil(context.Background(), t) }},
		{"time.Sleep", func(t time.Time) { time.Sleep(time.Until(t)) }},
	} {
		b.Run(way.name, func(b *testing.B) {
			late := lateness(b.N, way.sleep)
			b.ReportMetric(float64(late[len(late)/2].Microseconds()), "p50-late-µs")
			b.ReportMetric(float64(late[len(late)*99/100].Microseconds()), "p99-late-µs")
			b.ReportMetric(0, "ns/op")
		})
	}
}
