package choose

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// ErrUnanswered is wrapped by the error about a question that nobody answered.
var ErrUnanswered = errors.New("not answered")

// ParseAnswer reads yes or no, or the first letter of it.
func ParseAnswer(text string) (yes, ok bool) {
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "y", "yes":
		return true, true
	case "n", "no":
		return false, true
	}
	return false, false
}

// Walk goes down the tree by the answers, which are keyed by flag, and asks on out, reading from
// in, for those that are missing. With echo it also writes what it reads, for when in is no
// terminal.
func Walk(ctx context.Context, answers map[string]bool, in io.Reader, out io.Writer, echo bool) (*Choice, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	d := dialog{lines: readLines(ctx, in), out: out, echo: echo}
	var at node = Tree()
	asked := false
	for {
		q, more := at.(*Question)
		if !more {
			if asked {
				fmt.Fprintln(out) // separates the choice from the questions on a terminal
			}
			return at.(*Choice), nil
		}
		yes, known := answers[q.Flag]
		if !known {
			asked = true
			var err error
			if yes, err = d.ask(ctx, q); err != nil {
				return nil, err
			}
		}
		at = q.no
		if yes {
			at = q.yes
		}
	}
}

// dialog is a conversation with the person who answers.
type dialog struct {
	lines <-chan string
	out   io.Writer
	echo  bool
}

// ask asks until it gets an answer.
func (d dialog) ask(ctx context.Context, q *Question) (bool, error) {
	fmt.Fprintf(d.out, "%s\n  (%s)\n", q.Text, q.Why)
	for {
		fmt.Fprint(d.out, "  yes or no? ")
		select {
		case line, more := <-d.lines:
			if !more {
				fmt.Fprintln(d.out)
				return false, fmt.Errorf("--%s: %w: want yes or no", q.Flag, ErrUnanswered)
			}
			if d.echo {
				fmt.Fprintln(d.out, line)
			}
			if yes, ok := ParseAnswer(line); ok {
				return yes, nil
			}
		case <-ctx.Done():
			fmt.Fprintln(d.out)
			return false, context.Cause(ctx)
		}
	}
}

// readLines sends the lines of r, one at a time, so that the receiver can wait for something else
// besides. Its goroutine ends with r, or when a line was read and ctx is over.
func readLines(ctx context.Context, r io.Reader) <-chan string {
	lines := make(chan string)
	go func() {
		defer close(lines)
		for in := bufio.NewScanner(r); in.Scan(); {
			select {
			case lines <- in.Text():
			case <-ctx.Done():
				return
			}
		}
	}()
	return lines
}
