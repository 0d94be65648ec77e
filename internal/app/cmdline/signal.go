package cmdline

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Program is a whole program but for the process around it.
type Program func(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int

// Main runs a program as this process and does not return. The first SIGINT or SIGTERM ends its context, for an orderly
// stop; the second ends the process at once.
func Main(program Program) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // from then on signals do what they do to any program
	os.Exit(program(ctx, os.Args, os.Stdin, os.Stdout, os.Stderr))
}
