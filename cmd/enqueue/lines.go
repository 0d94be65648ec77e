package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/jobshaper/jobshaper/internal/cliutil"
	"github.com/jobshaper/jobshaper/internal/strict"
	"github.com/jobshaper/jobshaper/shaper"
)

const (
	// maxChunk is how many lines are offered together at most.
	maxChunk = 200
	// maxLine is how long a line may be: the largest payload with every byte written as \u0000, and
	// the rest.
	maxLine = 6*shaper.DefaultMaxPayload + 16<<10
)

// numbered is a line of a batch.
type numbered struct {
	number int // from 1
	text   []byte
	err    error // why it cannot be read
	spec   shaper.Spec
}

// isInvalid reports whether an error is the line's fault, and not the store's.
func isInvalid(err error) bool { return errors.Is(err, shaper.ErrInvalid) }

// eachChunk calls f with the lines of r as they come: with one as soon as there is one, with up to
// maxChunk if they come faster than f works. Blank lines are left out. It ends with r, with ctx, or
// with f's error.
func eachChunk(ctx context.Context, r io.Reader, f func([]numbered) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lines := make(chan numbered, maxChunk)
	failed := make(chan error, 1)
	go func() { // ends with r, or when a line was read and nobody wants it
		defer close(lines)
		failed <- readLines(ctx, r, lines)
	}()
	for {
		select {
		case line, more := <-lines:
			if !more {
				return <-failed
			}
			if err := f(gather(line, lines)); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// gather returns the first line, and after it the lines that are there already.
func gather(first numbered, lines <-chan numbered) []numbered {
	chunk := []numbered{first}
	for len(chunk) < maxChunk {
		select {
		case line, more := <-lines:
			if !more {
				return chunk
			}
			chunk = append(chunk, line)
		default:
			return chunk
		}
	}
	return chunk
}

func readLines(ctx context.Context, r io.Reader, lines chan<- numbered) error {
	in := bufio.NewReaderSize(r, 64<<10)
	for number := 1; ; number++ {
		text, tooLong, err := readLine(in)
		if err != nil && !errors.Is(err, io.EOF) {
			return cliutil.Exitf(cliutil.ExitDataErr, "--batch: line %d: %w", number, err)
		}
		line := numbered{number: number, text: text}
		if tooLong {
			line.err = fmt.Errorf("longer than %d bytes: %w", maxLine, shaper.ErrInvalid)
		}
		if tooLong || len(bytes.TrimSpace(strict.TrimBOM(text))) > 0 {
			select {
			case lines <- line:
			case <-ctx.Done():
				return nil
			}
		}
		if err != nil {
			return nil
		}
	}
}

// readLine reads a line into memory of its own. A line that is too long is read and thrown away.
func readLine(in *bufio.Reader) (text []byte, tooLong bool, err error) {
	for {
		part, err := in.ReadSlice('\n')
		if len(text)+len(part) > maxLine {
			text, tooLong = nil, true
		}
		if !tooLong {
			text = append(text, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return text, tooLong, err
		}
	}
}
