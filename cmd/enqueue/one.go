package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jobshaper/jobshaper/internal/api/wire"
	"github.com/jobshaper/jobshaper/internal/cliutil"
	"github.com/jobshaper/jobshaper/shaper"
)

// readOne reads the type and the payload of one job.
func (o *offer) readOne(c *cli.Context) error {
	args, err := cliutil.Args(c, "TYPE", "[PAYLOAD]")
	if err != nil {
		return err
	}
	o.spec.Type = args[0]
	switch payload := args[1]; {
	case payload == "-":
		o.spec.Payload, err = readPayload(o.stdin)
	case strings.HasPrefix(payload, "@"):
		var file *os.File
		if file, err = os.Open(payload[1:]); err == nil {
			o.spec.Payload, err = readPayload(file)
			_ = file.Close() // it was only read
		}
	default:
		o.spec.Payload = []byte(payload)
	}
	if err != nil {
		return cliutil.Exitf(cliutil.ExitDataErr, "payload: %w", err)
	}
	if n := len(o.spec.Payload); n > shaper.DefaultMaxPayload {
		return &shaper.PayloadTooLargeError{Size: n, Max: shaper.DefaultMaxPayload}
	}
	return nil
}

// readPayload reads no more than it takes to see that it is too much.
func readPayload(r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, shaper.DefaultMaxPayload+1))
	if len(b) > shaper.DefaultMaxPayload {
		return nil, fmt.Errorf("more than %d bytes: want at most that; pass a reference to the data instead", shaper.DefaultMaxPayload)
	}
	return b, err
}

// one offers one job and tells what came of it.
func (o *offer) one(ctx context.Context, follow bool) error {
	if follow { // who waits for the end wants the result, and only who asks has one
		o.spec.Retention = cmp.Or(o.spec.Retention, time.Hour)
	}
	answer := o.patiently(ctx, []shaper.Spec{o.spec})[0]
	switch {
	case answer.Err == nil:
	case ctx.Err() != nil:
		return cliutil.Exitf(cliutil.ExitTempFail, "interrupted: whether the job was accepted is not known")
	default:
		return answer.Err
	}
	r := answer.Result
	if o.json != nil {
		if err := o.json.Print(wire.NewResult(r)); err != nil {
			return err
		}
	}
	if r.Status != shaper.Accepted {
		return o.refused(r)
	}
	if o.json == nil {
		fmt.Fprintln(o.out, accepted(r))
	}
	if !follow {
		return nil
	}
	return o.follow(ctx, r)
}

// refused is the error for a job that was refused.
func (o *offer) refused(r shaper.Result) error {
	exit := &cliutil.Exit{Code: codeOf(r)}
	if o.json == nil { // else the answer on stdout says it
		exit.Err = fmt.Errorf("refused: %s", refusal(r))
	}
	return exit
}

// codeOf is the exit code for a refusal. It says whether another try makes sense.
func codeOf(r shaper.Result) int {
	if r.RetryAfter < 0 {
		return cliutil.ExitDataErr
	}
	return cliutil.ExitTempFail
}

// follow waits until the job has ended, and tells how.
func (o *offer) follow(ctx context.Context, r shaper.Result) error {
	job, err := o.client.Wait(ctx, r.Tenant, r.ID)
	if ctx.Err() != nil {
		return fmt.Errorf("no longer followed, but job %s goes on: see shaper jobs show %s", r.ID, r.ID)
	}
	if err != nil {
		return err
	}
	if o.json != nil {
		if err := o.json.Print(wire.NewJob(job)); err != nil {
			return err
		}
	} else {
		fmt.Fprintln(o.out, cliutil.Printable(ended(job)))
	}
	if job.State == shaper.StateDone {
		return nil
	}
	return &cliutil.Exit{Code: cliutil.ExitFailed}
}
