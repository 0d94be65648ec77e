package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/app/cmdline"
	"github.com/jobshaper/jobshaper/internal/app/trace"
	"github.com/jobshaper/jobshaper/internal/cliutil"
	"github.com/jobshaper/jobshaper/shaper"
)

// leakyQueue is the one algorithm that makes calls wait; the others are buckets.Algorithms.
const leakyQueue = "leaky-queue"

// traced are the algorithms, each with the flags for its size and its pace.
var traced = []struct{ algorithm, size, pace string }{
	{string(buckets.FixedWindow), "limit", "window"},
	{string(buckets.SlidingLog), "limit", "window"},
	{string(buckets.SlidingCounter), "limit", "window"},
	{string(buckets.TokenBucket), "capacity", "rate"},
	{string(buckets.LeakyBucket), "depth", "rate"},
	{leakyQueue, "depth", "rate"},
}

// tracing are the values of `shaper trace`.
type tracing struct {
	algorithm string
	given     []string // the parameters as they were given, for errors
	sizes     map[string]*int
	window    time.Duration
	rate      buckets.Rate
	grace     time.Duration
	calls     []trace.Call
}

func traceCommand() *cli.Command {
	limit, capacity, depth := new(int), new(int), new(int)
	t := &tracing{sizes: map[string]*int{"limit": limit, "capacity": capacity, "depth": depth}}
	return cliutil.Examples(&cli.Command{
		Name: "trace", Usage: "play calls against an algorithm and show each answer",
		ArgsUsage: "ALGORITHM AT[:COST]...",
		Description: "ALGORITHM is fixed-window, sliding-log or sliding-counter, with --limit and --window; token-bucket, with --capacity\n" +
			"and --rate; leaky-bucket, the meter that refuses, or leaky-queue, which makes calls wait, with --depth and --rate.\n" +
			"A leaky-queue may have a --grace; in the daemon's queues that is half their tolerance, 10ms by default.\n" +
			"AT is when a call comes, in seconds, with up to 6 decimals; COST is how much it takes, 1 if not given.",
		Flags: append([]cli.Flag{
			cmdline.Whole("limit", "how much a window lets pass: `N`", limit),
			cmdline.PositiveDuration("window", "how long a window is: `DURATION`", &t.window),
			cmdline.Whole("capacity", "how many tokens the bucket holds: `N`", capacity),
			cmdline.Whole("depth", "how much the leaky bucket or queue holds: `N`", depth),
			cmdline.Rate("rate", "how fast the bucket fills or leaks: `RATE` such as 10/s, 600/m or 1/90s", &t.rate),
			cmdline.Duration("grace", "a departure that passed at most `DURATION` ago keeps its slot, so that lateness is made up", &t.grace),
			&cli.StringFlag{Name: "store", Usage: "where the state is kept: `WORD`, memory or redis; in Redis that is one key, removed at the end", Value: "memory"},
			cmdline.JSONFlag(),
		}, cmdline.StoreFlags()...),
		Action: cmdline.Action(func(c *cli.Context) error {
			if err := t.read(c); err != nil {
				return err
			}
			return t.run(c)
		}),
	},
		"# bursts of three, then one a second",
		"shaper trace token-bucket --capacity 3 --rate 1/s 0 0 0 0 0.5 1 10",
		"# six within two seconds, although the limit is 3 a minute",
		"shaper trace fixed-window --limit 3 --window 60s 59 59 59 61 61 61",
		"# the queue allows no burst: each call waits for its turn",
		"shaper trace leaky-queue --depth 3 --rate 10/s 0 0 0 0",
		"# 5 ms late is made up, 11 ms is not",
		"shaper trace leaky-queue --depth 9 --rate 10/s --grace 10ms 0 0.105 0.205 0.311 0.411")
}

// read reads the command line, before a store is asked.
func (t *tracing) read(c *cli.Context) error {
	args, err := cliutil.Args(c, "ALGORITHM", "AT...")
	if err != nil {
		return err
	}
	i := slices.IndexFunc(traced, func(a struct{ algorithm, size, pace string }) bool { return a.algorithm == args[0] })
	if i < 0 {
		var names []string
		for _, a := range traced {
			names = append(names, a.algorithm)
		}
		return cliutil.Usagef("ALGORITHM %q: want one of %s", args[0], strings.Join(names, ", "))
	}
	t.algorithm = args[0]
	if err := t.readParameters(c, traced[i].size, traced[i].pace); err != nil {
		return err
	}
	if c.IsSet("grace") {
		if t.algorithm != leakyQueue {
			return cliutil.Usagef("--grace %q beside %s: want it with %s only", t.grace, t.algorithm, leakyQueue)
		}
		t.given = append(t.given, fmt.Sprintf("--grace %q", t.grace))
	}
	if store := c.String("store"); store != "memory" && store != "redis" {
		return cliutil.Usagef("--store %q: want memory or redis", store)
	}
	return t.readCalls(args[1:])
}

// readParameters makes sure that the algorithm has the two flags it needs, and none of another's.
func (t *tracing) readParameters(c *cli.Context, size, pace string) error {
	for _, name := range []string{"limit", "window", "capacity", "depth", "rate"} {
		value := fmt.Sprintf("--%s %q", name, c.Generic(name))
		switch needed := name == size || name == pace; {
		case needed && !c.IsSet(name):
			return cliutil.Usagef("missing flag --%s: %s wants --%s and --%s", name, t.algorithm, size, pace)
		case !needed && c.IsSet(name):
			return cliutil.Usagef("%s beside %s: want --%s and --%s only", value, t.algorithm, size, pace)
		case needed:
			t.given = append(t.given, value)
		}
	}
	return nil
}

func (t *tracing) readCalls(args []string) error {
	for _, text := range args {
		call, err := trace.ParseCall(text)
		if err == nil && t.algorithm == leakyQueue && call.N != 1 {
			return cliutil.Usagef("AT %q: want AT alone, since jobs enter a queue one by one", text)
		}
		if err != nil {
			return cliutil.Usagef("AT %q: %w", text, err)
		}
		t.calls = append(t.calls, call)
	}
	return nil
}

// run makes the trace and prints it.
func (t *tracing) run(c *cli.Context) error {
	clock := &trace.Clock{}
	size, key := int64(0), "shaper:trace:"+shaper.NewID()
	for _, n := range t.sizes {
		size = max(size, int64(*n)) // one of them is given
	}
	params := buckets.Params{Algorithm: buckets.Algorithm(t.algorithm), Limit: size, Window: t.window, Rate: t.rate}
	queue := buckets.LeakyQueue{Depth: size, Rate: t.rate, Grace: t.grace}
	invalid := params.Validate
	if t.algorithm == leakyQueue {
		invalid = queue.Validate
	}
	if err := invalid(); err != nil {
		return cliutil.Exitf(cliutil.ExitDataErr, "%s: %w", strings.Join(t.given, " "), err)
	}
	if c.String("store") == "memory" {
		if t.algorithm == leakyQueue {
			return printQueueTrace(c, trace.Queue(queue, t.calls))
		}
		l, err := buckets.NewMemory(params, buckets.MemoryConfig{Clock: clock.Micros})
		if err != nil {
			return err
		}
		return t.ask(c, l, clock)
	}
	s, err := cmdline.Open(c, "shaper-trace")
	if err != nil {
		return err
	}
	defer closeStore(s)
	if t.algorithm == leakyQueue {
		rows, err := trace.QueueInRedis(c.Context, s.Client, key, queue, t.calls)
		if err != nil {
			return err
		}
		return printQueueTrace(c, rows)
	}
	l, err := buckets.NewRedis(s.Client, params, buckets.RedisConfig{Prefix: key, Clock: clock.Micros})
	if err != nil {
		return err
	}
	return t.ask(c, l, clock)
}

func (t *tracing) ask(c *cli.Context, l buckets.Limiter, clock *trace.Clock) error {
	rows, err := trace.Limiter(c.Context, l, clock, t.calls)
	if err != nil {
		return err
	}
	return printTrace(c, rows)
}
