package queue

import (
	"testing"
	"time"
)

// A delay that is longer is believed at once, and forgotten slowly; a round trip the other way round.
func TestDelayIsForgottenSlowly(t *testing.T) {
	const ms = time.Millisecond
	var delay Delay
	var trip Trip
	for _, tc := range []struct{ took, delay, trip time.Duration }{
		{40 * ms, 40 * ms, 40 * ms},
		{120 * ms, 120 * ms, 50 * ms},
		{40 * ms, 110 * ms, 45 * ms},
		{0, 96 * ms, 22 * ms},
	} {
		delay.Note(tc.took)
		trip.Note(tc.took)
		if delay.Takes() != tc.delay || trip.Takes() != tc.trip {
			t.Errorf("after %v: %v and %v, want %v and %v", tc.took, delay.Takes(), trip.Takes(), tc.delay, tc.trip)
		}
	}
	for range 50 {
		delay.Note(0)
	}
	if delay.Takes() != 0 {
		t.Errorf("%v is never forgotten", delay.Takes())
	}
}
