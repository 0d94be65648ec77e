package cmdline

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
)

// Program is a whole program without the process around it.
type Program func(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int

// Main runs a program as this process and does not return. The first SIGINT or SIGTERM ends its
// context, for an orderly stop; the second ends the process at once.
func Main(program Program) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // from then on signals do what they do to any program
	os.Exit(program(ctx, os.Args, os.Stdin, os.Stdout, os.Stderr))
}

// Outlive lets a daemon outlive its terminal and the reader of its log, until stop is called:
// SIGHUP is logged, and a write to a closed stdout or stderr fails instead of ending the process.
// Neither signal is ignored, since the programs that the daemon runs would inherit that: `foo |
// head` would not end.
func Outlive(log *slog.Logger) (stop func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGPIPE)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for s := range signals {
			if s == syscall.SIGHUP {
				log.Info("SIGHUP: the daemon continues with the configuration it was started with")
			}
		}
	}()
	return func() {
		signal.Stop(signals)
		close(signals)
		<-done
	}
}

// WhileHeard returns a context that ends when the terminal is closed or nobody reads stdout or
// stderr any more, for a program that is of no use then, but has something to clean up.
func WhileHeard(ctx context.Context) (_ context.Context, stop func()) {
	return signal.NotifyContext(ctx, syscall.SIGHUP, syscall.SIGPIPE)
}
