package main

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/internal/api/wire"
	"github.com/jobshaper/jobshaper/internal/test/testenv"
	"github.com/jobshaper/jobshaper/shaper"
)

func TestLines(t *testing.T) {
	long := strings.Repeat("x", maxLine+1)
	input := "one\n\n  \ntwo\n" + long + "\nlast"
	var got []numbered
	if err := eachChunk(t.Context(), strings.NewReader(input), func(c []numbered) error { got = append(got, c...); return nil }); err != nil {
		t.Fatal(err)
	}
	want := []struct {
		number int
		text   string
		wrong  bool
	}{{1, "one\n", false}, {4, "two\n", false}, {5, "", true}, {6, "last", false}}
	if len(got) != len(want) {
		t.Fatalf("%d lines, want %d", len(got), len(want))
	}
	for i, w := range want {
		if got[i].number != w.number || string(got[i].text) != w.text || isInvalid(got[i].err) != w.wrong {
			t.Errorf("line %d: %d %.20q %v", i, got[i].number, got[i].text, got[i].err)
		}
	}
}

// A line is offered as soon as it is there, however slowly the next ones come.
func TestLinesComeAsTheyCome(t *testing.T) {
	r, w := io.Pipe()
	chunks, ended := make(chan []numbered), make(chan error, 1)
	go func() {
		ended <- eachChunk(t.Context(), r, func(c []numbered) error { chunks <- c; return nil })
	}()
	for range 3 {
		_, _ = io.WriteString(w, "line\n")
		select {
		case c := <-chunks:
			if len(c) != 1 {
				t.Errorf("%d lines", len(c))
			}
		case <-time.After(testenv.Patience):
			t.Fatal("the line waits for others")
		}
	}
	_ = w.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestLinesEnd(t *testing.T) {
	stop := errors.New("stop")
	if err := eachChunk(t.Context(), strings.NewReader("a\n"), func([]numbered) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("the error of the function: %v", err)
	}
	r, w := io.Pipe()
	defer w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := eachChunk(ctx, r, func([]numbered) error { return nil }); err != nil {
		t.Errorf("interrupted: %v", err)
	}
}

// Whatever a batch file holds: each line that is not blank comes once, in order and whole, or is
// said to be too long; and what is read of it is a job or an error of the input.
func FuzzLines(f *testing.F) {
	for _, s := range []string{"", "\n\n", `{"type":"a"}`, "{\"type\":\"a\",\"tenant\":\"b\"}\r\n \n{\"type\":1}\n", "\x00\xff\n[[[[", strings.Repeat("x", maxLine+1) + "\ny",
		"\ufeff\n\ufeff{\"type\":\"a\"}\r\n\ufeff", "\xff\xfe{\x00\n\x00", `{"type":"a","payload":"\ud83d"}`, `{"headers":{"a":"1","a":null}}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, input string) {
		var want []string
		for line := range strings.Lines(input) {
			if len(line) > maxLine {
				want = append(want, "")
			} else if strings.TrimSpace(strings.TrimPrefix(line, "\ufeff")) != "" {
				want = append(want, line)
			}
		}
		var got []string
		last := 0
		err := eachChunk(t.Context(), strings.NewReader(input), func(chunk []numbered) error {
			for _, line := range chunk {
				if line.number <= last || (line.err != nil) != (line.text == nil) || line.err != nil && !isInvalid(line.err) {
					t.Errorf("line %d after %d: %d bytes, %v", line.number, last, len(line.text), line.err)
				}
				last = line.number
				got = append(got, string(line.text))
				if _, err := wire.ReadSpec(line.text, shaper.Spec{}, true); err != nil && !isInvalid(err) {
					t.Errorf("line %d: %v, want an error of the input", line.number, err)
				}
			}
			return nil
		})
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q is read as %q, %v; want %q", input, got, err, want)
		}
	})
}

func TestWindow(t *testing.T) {
	full := func(tenant string) shaper.Offered {
		return shaper.Offered{Result: shaper.Result{Tenant: tenant, Status: shaper.Refused, Reason: shaper.RefusedFull, RetryAfter: time.Second}}
	}
	ok := func(tenant string) shaper.Offered {
		return shaper.Offered{Result: shaper.Result{Tenant: tenant, Status: shaper.Accepted}}
	}
	never := shaper.Offered{Result: shaper.Result{Tenant: "a", Status: shaper.Refused, RetryAfter: -1}}
	out := []shaper.Offered{ok("a"), full("a"), never, full("a"), full("b"), full("a"), full("a")}
	w, now := window{}, time.Now()
	for _, step := range []struct {
		answers []shaper.Offered // to the round before
		want    []int
	}{
		{nil, []int{1, 4}}, // the first of each tenant
		{[]shaper.Offered{ok("a"), full("b")}, []int{1, 3, 4}},
		{[]shaper.Offered{ok("a"), ok("a"), full("b")}, []int{1, 3, 4, 5, 6}},
		{[]shaper.Offered{ok("a"), full("a"), full("b")}, []int{1, 4}},
	} {
		w.learn(step.answers)
		due, waits := w.due(out, now)
		if early := w.choose(out, now.Add(time.Second-1), false); !waits || due.Before(now.Add(time.Second)) || len(early) > 0 {
			t.Fatalf("a round after %v, of %v before; want one after a second or a little more", due.Sub(now), early)
		}
		now = now.Add(2 * time.Second)
		round := w.choose(out, now, false)
		if len(round) != len(step.want) {
			t.Fatalf("round %v, want %v", round, step.want)
		}
		for i := range round {
			if round[i] != step.want[i] {
				t.Errorf("round %v, want %v", round, step.want)
			}
		}
	}
}
