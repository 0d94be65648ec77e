package main

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
	"github.com/jobshaper/jobshaper/internal/test/testenv"
	"github.com/jobshaper/jobshaper/shaper"
)

func TestMain(m *testing.M) { redistest.VerifyTestMain(m) }

// TestWaitAsksSeldom: --wait asks Redis a few times a second where a full bucket cannot know when
// there will be room (nobody works here), for a batch of several tenants too; and it takes the
// place that becomes free.
func TestWaitAsksSeldom(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client()
	admin, err := shaper.NewAdmin(rdb, "default")
	if err != nil {
		t.Fatal(err)
	}
	enqueue := func(stdin string, words ...string) (int, string) {
		var out, errs bytes.Buffer
		code := Run(t.Context(), append([]string{"enqueue", "--redis", server.URL()}, words...), strings.NewReader(stdin), &out, &errs)
		return code, out.String() + errs.String()
	}
	for _, tenant := range []string{"a", "b"} {
		if err := admin.SetTenant(t.Context(), tenant, shaper.Policy{Depth: 1, Rate: buckets.PerSecond(2)}); err != nil {
			t.Fatal(err)
		}
		if code, said := enqueue("", "-t", tenant, "hello"); code != 0 {
			t.Fatal(said)
		}
	}
	asked := func() (n int) {
		m := regexp.MustCompile(`cmdstat_evalsha:calls=(\d+)`).FindStringSubmatch(rdb.Info(t.Context(), "commandstats").Val())
		if m == nil {
			t.Fatal("nothing was asked")
		}
		n, _ = strconv.Atoi(m[1])
		return n
	}
	for _, row := range []struct {
		stdin string
		words []string
	}{
		{"", []string{"-t", "a", "--wait", "1s", "hello"}},
		{`{"tenant":"a","type":"x"}` + "\n" + `{"tenant":"b","type":"x"}` + "\n", []string{"--batch", "-", "--wait", "1s"}},
	} {
		before := asked()
		if code, said := enqueue(row.stdin, row.words...); code != 75 {
			t.Errorf("%v: exit code %d, %s", row.words, code, said)
		}
		if n := asked() - before; n < 2 || n > 20 {
			t.Errorf("%v: %d calls in 1 s, want 2 to 20", row.words, n)
		}
	}

	// Room is made while it waits; now it is told to ask every interval, since there is a pool,
	// which no job reaches.
	gate := queue.NewGate(queue.Open(rdb, "default"))
	if _, err := gate.Beat(t.Context(), "idle", 1, time.Hour, nil); err != nil {
		t.Fatal(err)
	}
	answer := make(chan string, 1)
	go func() {
		code, said := enqueue("", "-t", "a", "--wait", testenv.Patience.String(), "hello")
		answer <- fmt.Sprint(code, " ", said)
	}()
	for before := asked(); asked() < before+5; {
		time.Sleep(10 * time.Millisecond)
	}
	if n, err := admin.Purge(t.Context(), "a"); n != 1 || err != nil {
		t.Fatalf("purged %d, %v", n, err)
	}
	free := asked()
	if said := <-answer; !strings.HasPrefix(said, "0 accepted") {
		t.Error(said)
	}
	if n := asked() - free; n > 1 {
		t.Errorf("%d tries after a place became free, want one", n)
	}
}
