package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/api"
	"github.com/jobshaper/jobshaper/internal/app"
	"github.com/jobshaper/jobshaper/internal/app/cmdline"
	"github.com/jobshaper/jobshaper/internal/cliutil"
	"github.com/jobshaper/jobshaper/shaper"
)

// runFlags are the values of `shaper run`.
type runFlags struct {
	rate        buckets.Rate
	totalRate   buckets.Rate
	depth       int
	concurrency int
	departures  int
	grace       time.Duration
	client      shaper.ClientConfig
}

// defaultListen is where a daemon listens unless it is told otherwise.
const defaultListen = "127.0.0.1:8080"

// defaultGrace is how long running jobs may take to end after the first signal.
const defaultGrace = 30 * time.Second

func runCommand() *cli.Command {
	f := &runFlags{grace: defaultGrace}
	return cliutil.Examples(&cli.Command{
		Name:  "run",
		Usage: "run the daemon: release jobs when their time comes, and run them",
		Description: "A config file can say everything (see `shaper config check`); for one downstream, flags alone will do.\n" +
			"Without --redis the daemon brings its own store, which `enqueue` and the other commands find by themselves.",
		Flags: slices.Concat(cliutil.FromEnv(
			&cli.StringFlag{Name: "config", Usage: "read downstreams from the YAML `FILE`"},
			&cli.StringFlag{Name: "exec", Usage: "run `COMMAND` for each job, split into words as a shell does, but not run by one; {payload.FIELD} in its arguments comes from the job's JSON payload"},
			&cli.StringFlag{Name: "http", Usage: "post each job's payload to `URL`"},
			cmdline.Rate("rate", "how fast each tenant's jobs leave: `RATE` such as 10/s, 600/m or 1/90s (default: 10/s)", &f.rate),
			cmdline.Rate("total-rate", "how fast the jobs of all tenants together leave at most: `RATE` (default: no bound but each tenant's)", &f.totalRate),
			cmdline.Whole("depth", "how many jobs of each tenant may wait: `N` (default: 1000)", &f.depth),
			cmdline.Whole("concurrency", "how many jobs run at a time in this process: `N` (default: 10)", &f.concurrency),
			cmdline.Whole("departure-log", "keep a log of departures of about `N` entries, two for each start, for shaper verify (default: none)", &f.departures),
			cmdline.RulesFlag("admit", "refuse jobs beyond a limit before they enter a queue"),
			&cli.StringFlag{Name: "listen", Usage: "serve the HTTP API, /metrics and health checks at `ADDRESS`: HOST:PORT (an address that is not loopback needs SHAPER_API_TOKENS), unix:/PATH, or none (default: " + defaultListen + " if it is free and the daemon has a store of its own, else none)"},
			&cli.StringFlag{Name: "ratelimit-headers", Usage: "which headers tell HTTP producers about the admission rules: `WORD`, legacy (X-RateLimit-*), ietf (RateLimit), both or none", Value: string(api.LegacyHeaders)},
			&cli.StringFlag{Name: "roles", Usage: "take only the roles in `LIST`, some of scheduler,worker,api", Value: "scheduler,worker,api"},
			cmdline.Duration("grace", "how long running jobs may take to end when the daemon stops: `DURATION`", &f.grace),
			&cli.BoolFlag{Name: "accept-unfit-redis", Usage: "run even on a Redis on which jobs will be lost or stuck, see shaper doctor"},
			&cli.StringFlag{Name: "log-format", Usage: "`FORMAT` of log lines: text or json", Value: "text"},
			&cli.BoolFlag{Name: "verbose", Usage: "log more"},
		), cmdline.WaitReplicas(&f.client), []cli.Flag{cmdline.DownstreamFlag()}, cmdline.StoreFlags()),
		Action: func(c *cli.Context) error { return runDaemon(c, f) },
	},
		"# one downstream, from flags alone",
		"shaper run --rate 10/s --total-rate 50/s --exec 'convert {payload.in} {payload.out}'",
		"shaper run --rate 600/m --total-rate 600/m --http https://partner.example/orders",
		"# no more than 100 jobs a minute from each tenant, in bursts of up to 20",
		"shaper run --exec ./job.sh --admit 'token_bucket 100/m burst 20'",
		"# everything, from a file",
		"shaper run --config shaper.yaml --listen 127.0.0.1:8080",
		"# take jobs here, run them elsewhere",
		"shaper run --redis redis://10.0.0.5/0 --roles scheduler,api --listen 127.0.0.1:8080")
}

func runDaemon(c *cli.Context, f *runFlags) error {
	if _, err := cliutil.Args(c); err != nil {
		return err
	}
	level := slog.LevelInfo
	if c.Bool("verbose") {
		level = slog.LevelDebug
	}
	cfg, err := daemonConfig(c, f)
	if err != nil {
		return err
	}
	queue, log, err := cmdline.NewLogQueue(c.App.ErrWriter, c.String("log-format"), level)
	if err != nil {
		return err
	}
	defer cmdline.Outlive(log)() // until the last line is written
	defer queue.Stop()
	cfg.LogDropped = queue.Dropped
	cfg.Log, cfg.Version = log, version
	if cfg.Tokens, err = api.Tokens(os.Getenv("SHAPER_API_TOKENS")); err != nil {
		return err
	}
	cfg.Started = func(r app.Running) {
		roles := cfg.Roles
		roles.API = roles.API && r.Address != "" // empty if the default address was taken
		log.Info("roles: " + roles.String())
		for _, d := range cfg.Downstreams {
			p := d.Policy.WithDefaults().Defaults
			log.Info(fmt.Sprintf("downstream %s: each tenant's jobs leave at %s, one every %s; %d may wait", d.Name, p.Rate, p.Rate.Interval(), p.Depth))
			for _, rule := range cmdline.RuleTexts(d.Policy.Admit) {
				log.Info(fmt.Sprintf("downstream %s: admits %s", d.Name, rule))
			}
			if text := cmdline.Exposure(d.Policy); text != "" {
				log.Warn(fmt.Sprintf("downstream %s: %s", d.Name, text))
			}
		}
		switch {
		case strings.HasPrefix(r.Address, "unix:"):
			log.Info("listening at " + r.Address)
		case r.Address != "":
			if len(cfg.Tokens) == 0 {
				log.Warn("any user of this machine may post jobs; SHAPER_API_TOKENS or --listen unix:/PATH keeps others out")
			}
			log.Info("listening at http://" + r.Address)
		}
	}
	err = app.Run(c.Context, cfg)
	if errors.Is(err, shaper.ErrInvalid) { // all that a daemon is given is configuration
		err = &cliutil.Exit{Code: cliutil.ExitConfig, Err: err}
	}
	if err == nil {
		log.Info("stopped in good order")
		return nil
	}
	return tellLast(queue, cmdline.Classify(err))
}

// tellLast reports an error by way of the log, whose reader must not keep the process from ending.
func tellLast(w io.Writer, err error) error {
	code := cliutil.ExitFailed
	if exit := (*cliutil.Exit)(nil); errors.As(err, &exit) {
		code = exit.Code
	}
	fmt.Fprintf(w, "shaper: %s\n", cliutil.Printable(err.Error()))
	return &cliutil.Exit{Code: code}
}

// daemonConfig makes the daemon's configuration from a file or from flags; a flag that is given
// wins over the file.
func daemonConfig(c *cli.Context, f *runFlags) (app.Config, error) {
	roles, err := app.ParseRoles(c.String("roles"))
	if err != nil {
		return app.Config{}, err
	}
	headers, err := api.ParseLimitHeaders(c.String("ratelimit-headers"))
	if err != nil {
		return app.Config{}, cliutil.Usagef("--%w", err)
	}
	cfg := app.Config{Roles: roles, Limits: headers, Grace: f.grace, Accept: c.Bool("accept-unfit-redis")}
	if f.grace < 0 {
		return app.Config{}, cliutil.Usagef("--grace %q: want 0 or more", f.grace)
	}
	if f.grace == 0 {
		cfg.Grace = time.Nanosecond // a pool takes 0 for its default
	}
	if path := c.String("config"); path != "" {
		err = fromFile(c, f, path, &cfg)
	} else {
		err = fromFlags(c, f, &cfg)
	}
	if err != nil {
		return app.Config{}, err
	}
	override := func(name string, p *string) {
		if c.IsSet(name) || *p == "" {
			*p = c.String(name)
		}
	}
	override("redis", &cfg.Redis)
	override("data-dir", &cfg.DataDir)
	override("listen", &cfg.Listen)
	switch {
	case cfg.Listen == "none":
		cfg.Listen = ""
	case cfg.Listen == "" && roles.API && cfg.Redis == "": // its jobs come from this machine
		cfg.Listen, cfg.MayListen = defaultListen, true
	}
	if c.IsSet("roles") && roles.API && cfg.Listen == "" {
		return app.Config{}, cliutil.Usagef("--roles %s: the role api needs an address: want --listen %s too", roles, defaultListen)
	}
	cfg.Roles.API = roles.API && cfg.Listen != ""
	return cfg, nil
}

// usageNoTarget is the error for a daemon with nothing to run jobs with. It lists what there is.
func usageNoTarget() error {
	return &cliutil.Exit{Code: cliutil.ExitUsage, Err: errors.New(`what should run the jobs? Want one of
  --exec 'COMMAND {payload.FIELD} …'   run a command for each job
  --http URL                           post each job to a URL
  --config FILE                        several downstreams, each with its own target
or --roles scheduler,api if workers run elsewhere. To see what it does: shaper demo
See shaper run --help`)}
}
