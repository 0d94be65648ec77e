package breaker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestBreaker(t *testing.T) {
	type step struct {
		at   time.Duration
		do   string // enter, succeed, fail, return: of the pass that was given last
		want bool   // of enter
	}
	const ms = time.Millisecond
	for name, steps := range map[string][]step{
		"opens after failures in a row": {
			{0, "enter", true}, {0, "fail", false},
			{0, "enter", true}, {0, "fail", false},
			{0, "enter", true}, {0, "succeed", false}, // which makes it begin again
			{0, "enter", true}, {0, "fail", false},
			{0, "enter", true}, {0, "fail", false},
			{0, "enter", true}, {1 * ms, "fail", false},
			{1 * ms, "enter", false},
			{250 * ms, "enter", false},
			{251 * ms, "enter", true},  // half-open
			{252 * ms, "enter", false}, // one at a time
			{300 * ms, "fail", false},
			{549 * ms, "enter", false},
			{550 * ms, "enter", true},
			{551 * ms, "succeed", false},
			{551 * ms, "enter", true}, {551 * ms, "enter", true},
		},
		"a probe that says nothing makes room for another": {
			{0, "enter", true}, {0, "fail", false}, {0, "enter", true}, {0, "fail", false}, {0, "enter", true}, {0, "fail", false},
			{250 * ms, "enter", true}, {260 * ms, "enter", false}, {270 * ms, "return", false}, {270 * ms, "enter", true},
		},
	} {
		var b Breaker
		var last Pass
		start := time.Unix(1000, 0)
		for i, s := range steps {
			now := start.Add(s.at)
			switch s.do {
			case "enter":
				p, ok := b.Enter(now)
				if ok != s.want {
					t.Fatalf("%s, step %d, %v: let through: %v", name, i, s.at, ok)
				}
				if ok {
					last = p
				}
			case "succeed":
				b.Succeeded(last)
			case "fail":
				b.Failed(last, now)
			case "return":
				b.Returned(last)
			}
		}
	}
}

// A call that began while the breaker was closed decides nothing once it is open.
func TestBreakerIgnoresLateCalls(t *testing.T) {
	var b Breaker
	now := time.Unix(1000, 0)
	late, _ := b.Enter(now)
	for i := range After {
		p, _ := b.Enter(now)
		if opened := b.Failed(p, now); opened != (i == After-1) {
			t.Errorf("failure %d opened it: %v", i+1, opened)
		}
	}
	b.Succeeded(late)
	if _, ok := b.Enter(now); ok {
		t.Error("a success from before closed it")
	}
	if b.Failed(late, now.Add(time.Hour)) {
		t.Error("a failure from before opened it again")
	}
	if _, ok := b.Enter(now.Add(For)); !ok {
		t.Error("a failure from before kept it open")
	}
}

// answer is what Redis says.
type answer string

func (a answer) Error() string { return string(a) }
func (answer) RedisError()     {}

var _ redis.Error = answer("")

func TestAway(t *testing.T) {
	for _, row := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{io.EOF, true},
		{context.DeadlineExceeded, true},
		{&net.OpError{Op: "dial", Err: errors.New("connection refused")}, true},
		{redis.ErrPoolTimeout, true},
		{answer("LOADING Redis is loading the dataset in memory"), true},
		{answer("READONLY You can't write against a read only replica."), true},
		{answer("CLUSTERDOWN The cluster is down"), true},
		{answer("MASTERDOWN Link with MASTER is down"), true},
		{answer("ERR max number of clients reached"), true},
		{answer("WRONGTYPE Operation against a key holding the wrong kind of value"), false},
		{answer("ERR user_script:1: attempt to compare nil with number"), false},
		{answer("OOM command not allowed when used memory > 'maxmemory'."), false},
	} {
		err := row.err
		if err != nil {
			err = fmt.Errorf("enqueue: %w", err)
		}
		if Away(err) != row.want {
			t.Errorf("%v: away %v", err, !row.want)
		}
	}
}
