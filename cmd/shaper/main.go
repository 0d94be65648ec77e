// Command shaper is the daemon, and all that an operator needs: see `shaper --help`.
package main

import (
	"context"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/jobshaper/jobshaper/internal/app/cmdline"
	"github.com/jobshaper/jobshaper/internal/cliutil"
)

var version = "dev" // set by the linker

func main() { cmdline.Main(Run) }

// Run is the program. It returns the exit code.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	app := &cli.App{
		Name:    "shaper",
		Version: version,
		Usage:   "bounded queues for something fragile, drained at an exact rate",
		Description: "Producers enqueue jobs in bursts; each tenant's jobs wait in a queue of their own and leave one at a time,\n" +
			"evenly spaced. Start with `shaper demo`.",
		Commands: []*cli.Command{
			runCommand(), demoCommand(), tenantsCommand(), jobsCommand(), deadCommand(), statsCommand(), topCommand(), configCommand(),
			verifyCommand(), traceCommand(), checkCommand(), chooseCommand(stdin), doctorCommand(),
		},
	}
	cliutil.AppExamples(app,
		"# what it does, in 15 seconds",
		"shaper demo",
		"# start a daemon that runs a command for each job, ten a second, and offer it a job",
		"shaper run --rate 10/s --total-rate 50/s --exec 'ffmpeg -i {payload.input} {payload.output}'",
		`enqueue video:transcode '{"input":"a.mov","output":"a.mp4"}'`,
		"# how it is going",
		"shaper stats")
	return cliutil.Run(ctx, app, args, stdout, stderr)
}
