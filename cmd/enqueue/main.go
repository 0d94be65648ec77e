// Command enqueue offers jobs to a tenant's queue, from the command line or from a file: see
// `enqueue --help`.
package main

import (
	"context"
	"io"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jobshaper/jobshaper/internal/app/cmdline"
	"github.com/jobshaper/jobshaper/internal/cliutil"
	"github.com/jobshaper/jobshaper/shaper"
)

var version = "dev" // set by the linker

func main() { cmdline.Main(Run) }

// offer is what the command line asks for.
type offer struct {
	spec       shaper.Spec // the one job, or what the lines of a batch leave open
	downstream string
	wait       time.Duration // how long to try again where there is no room
	deadline   time.Time     // when that is over
	stdin      io.Reader
	out, err   io.Writer
	json       *cliutil.JSONLines // nil for people
	client     *shaper.Client
	options    shaper.ClientConfig
}

// Run is the program. It returns the exit code.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	o := &offer{stdin: stdin, err: stderr}
	app := &cli.App{
		Name:      "enqueue",
		Version:   version,
		Usage:     "offer jobs to a tenant's queue",
		UsageText: "enqueue [options] TYPE [PAYLOAD | @FILE | -]\nenqueue [options] --batch FILE.jsonl|-",
		Description: "A job that is accepted runs, however many are ahead of it: each tenant's queue is drained at its own exact rate.\n" +
			"A job that is refused leaves no trace.\n\n" +
			"PAYLOAD is text; @FILE reads it from a file, - from stdin. A batch has a JSON object on each line, with type\n" +
			"and, if need be, tenant, payload, id, delay, at, timeout, max_attempts, max_wait, retention and headers; the flags\n" +
			"fill in what a line leaves out. A payload that is a JSON string becomes its text; any other JSON value stays JSON.\n\n" +
			"Exit codes: 0 all accepted; 1 the job that was followed did not succeed; 64 usage; 65 bad input or conflict;\n" +
			"69 store unreachable or replicas silent; 74 the answer cannot be written; 75 refused, try again later (in a batch: some were).",
		Flags: cmdline.Flags(append([]cli.Flag{
			&cli.StringFlag{Name: "tenant", Aliases: []string{"t"}, Usage: "`NAME` of the tenant", Value: shaper.DefaultName},
			&cli.StringFlag{Name: "id", Usage: "the job's own `ID`: offered twice, it is still one job"},
			cmdline.Duration("delay", "not before `DURATION` from now", &o.spec.Delay),
			cmdline.Time("at", "not before `TIME`, such as 2030-01-31T12:00:00Z", &o.spec.At),
			cmdline.PositiveDuration("timeout", "end the job when it has run for `DURATION` (default: the tenant's)", &o.spec.Timeout),
			cmdline.Whole("max-attempts", "starts that may fail before the job is dead: `N` (default: the tenant's)", &o.spec.MaxAttempts),
			cmdline.MaxWait("give up a job that has not started after `DURATION`, or forever (default: the tenant's)", &o.spec.MaxWait),
			cmdline.PositiveDuration("retention", "for `DURATION` after its end know the job's id, and its result (default: the id for as long as the tenant's policy says, and no result)", &o.spec.Retention),
			cmdline.Duration("wait", "while there is no room, or a limit is reached, try again when told to, for up to `DURATION`", &o.wait),
			&cli.BoolFlag{Name: "follow", Usage: "wait until the job has ended, and print its result; it is kept for an hour unless --retention says otherwise"},
			&cli.StringFlag{Name: "batch", Usage: "offer the jobs in `FILE`, one per line; - is stdin"},
		}, cmdline.WaitReplicas(&o.options)...)...),
		Action: cmdline.Action(func(c *cli.Context) error { return o.run(c) }),
	}
	cliutil.AppExamples(app,
		`enqueue video:transcode '{"input":"a.mov","output":"a.mp4"}'`,
		"enqueue --tenant acme --id order-4711 mail:send @letter.json",
		"# try again for a minute while the queue is full, then wait until the job has ended",
		"enqueue --wait 1m --follow report:build 2030-01",
		"# many at once, the answers as JSON",
		`echo '{"tenant":"acme","type":"ping","payload":{"n":1}}' | enqueue --batch - --json`)
	return cliutil.Run(ctx, app, args, stdout, stderr)
}

func (o *offer) run(c *cli.Context) error {
	job, err := o.read(c)
	if err != nil {
		return err
	}
	s, err := cmdline.Open(c, "enqueue")
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }() // a failure changes nothing any more
	if o.client, err = shaper.NewClient(s.Client, o.downstream, o.options); err != nil {
		return err
	}
	o.deadline = time.Now().Add(o.wait)
	if job {
		return o.one(c.Context, c.Bool("follow"))
	}
	return o.batch(c.Context, c.String("batch"))
}

// read reads the command line, before the store is asked. job says that it is about one job, not a
// batch.
func (o *offer) read(c *cli.Context) (job bool, err error) {
	o.downstream, o.spec.Tenant, o.spec.ID = c.String("downstream"), c.String("tenant"), c.String("id")
	o.out = c.App.Writer
	if c.Bool("json") {
		o.json = cliutil.NewJSONLines(o.out)
	}
	for _, name := range [][2]string{{"downstream", o.downstream}, {"tenant", o.spec.Tenant}} {
		if err := shaper.ValidName(name[0], name[1]); err != nil {
			return false, err
		}
	}
	switch {
	case o.wait < 0:
		return false, cliutil.Usagef("--wait %q: want 0 or more", o.wait)
	case o.spec.Delay != 0 && !o.spec.At.IsZero():
		return false, cliutil.Usagef("--delay and --at: want only one of them")
	case !c.IsSet("batch"):
		return true, o.readOne(c)
	case c.Bool("follow"):
		return false, cliutil.Usagef("--follow beside --batch: want it with one job")
	case o.spec.ID != "":
		return false, cliutil.Usagef("--id beside --batch: want it in the lines, as id")
	case c.NArg() > 0:
		return false, cliutil.Usagef("unexpected argument %q beside --batch: the type of each job is in its line", c.Args().First())
	}
	return false, nil
}
