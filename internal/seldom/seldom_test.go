package seldom

import (
	"testing"
	"time"
)

func TestTellsOnceInAWhile(t *testing.T) {
	c := Counter{Every: 5 * time.Second}
	begin := time.Now()
	told, counted := 0, 0
	for at := time.Duration(0); at < 3*c.Every; at += 10 * time.Millisecond {
		if n, ok := c.Note(begin.Add(at)); ok {
			told, counted = told+1, counted+n
		}
	}
	// At 0, 5 and 10 s; what came after the last line waits for the next.
	if told != 3 || counted != 1001 {
		t.Errorf("told %d times of %d, want 3 times of 1001", told, counted)
	}
}
