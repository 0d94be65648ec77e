package main

import (
	"context"
	"fmt"
	"os"

	"github.com/jobshaper/jobshaper/internal/api/wire"
	"github.com/jobshaper/jobshaper/internal/cliutil"
	"github.com/jobshaper/jobshaper/shaper"
)

// batch offers the jobs of a file's lines, in order, and tells what came of each. A line that is
// wrong or refused hinders no other; the file is read as it comes, not as a whole.
func (o *offer) batch(ctx context.Context, name string) error {
	input, size := o.stdin, int64(-1)
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return cliutil.Exitf(cliutil.ExitDataErr, "--batch: %w", err)
		}
		defer file.Close()
		if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
			size = info.Size()
		}
		input = file
	}
	bar := newProgress(o.err, size)
	counted := &tally{}
	err := eachChunk(ctx, bar.reading(input), func(chunk []numbered) error {
		err := o.offerChunk(ctx, chunk, counted, bar)
		bar.jobs(counted.total())
		return err
	})
	bar.close()
	if ctx.Err() != nil {
		err = cliutil.Exitf(cliutil.ExitTempFail, "interrupted after %s; lines with an id may be offered again", counted)
	}
	if o.json == nil {
		fmt.Fprintln(o.out, counted)
	}
	if err != nil {
		return err
	}
	return counted.exit()
}

// offerChunk offers a few lines together and tells the answers in their order. It returns an error
// only if the store fails, after telling the answers that came before.
func (o *offer) offerChunk(ctx context.Context, chunk []numbered, counted *tally, bar *progress) error {
	specs := make([]shaper.Spec, 0, len(chunk))
	for i := range chunk {
		if chunk[i].err == nil {
			chunk[i].spec, chunk[i].err = wire.ReadSpec(chunk[i].text, o.spec, true)
		}
		if chunk[i].err == nil {
			specs = append(specs, chunk[i].spec)
		}
	}
	answers := o.patiently(ctx, specs)
	for _, line := range chunk {
		answer := shaper.Offered{Err: line.err}
		if line.err == nil {
			answer, answers = answers[0], answers[1:]
		}
		if err := o.tell(line, answer, counted, bar); err != nil {
			return err
		}
	}
	return nil
}

// tell tells and counts the answer to one line. It returns an error if the store failed.
func (o *offer) tell(line numbered, answer shaper.Offered, counted *tally, bar *progress) error {
	var result wire.Result
	switch err := answer.Err; {
	case err == nil:
		counted.add(answer.Result)
		result = wire.NewResult(answer.Result)
		if answer.Result.Status == shaper.Refused {
			result.Error = fmt.Sprintf("line %d: %s", line.number, refusal(answer.Result))
		}
	case isInvalid(err):
		counted.invalid++
		result = wire.Invalid(line.spec, o.downstream, fmt.Errorf("line %d: %w", line.number, err))
	default:
		return fmt.Errorf("line %d: %w", line.number, err)
	}
	if o.json != nil {
		return o.json.Print(result)
	}
	if result.Error != "" {
		bar.above(o.err, "enqueue: "+result.Error)
	}
	return nil
}

// tally counts answers.
type tally struct {
	accepted, duplicates, full, never, invalid int
}

func (t *tally) add(r shaper.Result) {
	switch {
	case r.Status == shaper.Accepted:
		t.accepted++
		if r.Duplicate {
			t.duplicates++
		}
	case codeOf(r) == cliutil.ExitTempFail:
		t.full++
	default:
		t.never++
	}
}

func (t *tally) total() int { return t.accepted + t.full + t.never + t.invalid }

// String sums up for people.
func (t *tally) String() string {
	s := fmt.Sprintf("%d accepted", t.accepted)
	if t.duplicates > 0 {
		s += fmt.Sprintf(" (%d of them duplicates)", t.duplicates)
	}
	if t.full > 0 {
		s += fmt.Sprintf(", %d refused for now", t.full)
	}
	if t.never > 0 {
		s += fmt.Sprintf(", %d refused for good", t.never)
	}
	if t.invalid > 0 {
		s += fmt.Sprintf(", %d not valid", t.invalid)
	}
	return s
}

// exit is the exit code: for input that must be corrected, before that for jobs that are worth
// another try as they are.
func (t *tally) exit() error {
	switch {
	case t.invalid+t.never > 0:
		return &cliutil.Exit{Code: cliutil.ExitDataErr}
	case t.full > 0:
		return &cliutil.Exit{Code: cliutil.ExitTempFail}
	}
	return nil
}
