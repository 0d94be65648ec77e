package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"github.com/hibiken/asynq"
	"golang.org/x/sync/errgroup"
)

// tool is what turns one media file into another.
type tool struct {
	about               string // for people: what it does, and with what
	inputExt, outputExt string
	handler             asynq.Handler // runs a job whose payload is that of a file
	make                func(ctx context.Context, sources []source) error
	check               func(ctx context.Context, outputs []string) error // decodes them, from start to end
}

// source is a file to make. Files with different n differ.
type source struct {
	path string
	n    int
}

// chooseTool returns the tool of that name; auto is ffmpeg where it can be used, else Go's own
// codecs.
func chooseTool(name string) (tool, error) {
	switch name {
	case "ffmpeg":
		return ffmpegTool()
	case "go":
		return goTool("as asked for"), nil
	case "auto":
		t, err := ffmpegTool()
		switch {
		case err == nil:
			return t, nil
		case errors.Is(err, exec.ErrNotFound):
			return goTool("no ffmpeg on PATH"), nil
		default:
			return goTool(err.Error()), nil
		}
	}
	return tool{}, fmt.Errorf("-tool %q: want auto, ffmpeg or go", name)
}

// makeOnce makes the source files that no earlier run has made. Each appears under its name only
// once it is whole.
func makeOnce(ctx context.Context, t tool, sources []source) error {
	var parts []source
	var paths []string
	for _, s := range sources {
		if _, err := os.Stat(s.path); err == nil {
			continue
		}
		paths = append(paths, s.path)
		parts = append(parts, source{filepath.Join(filepath.Dir(s.path), ".part-"+filepath.Base(s.path)), s.n})
	}
	if len(parts) == 0 {
		return nil
	}
	err := t.make(ctx, parts)
	for i, part := range parts {
		if err == nil {
			err = os.Rename(part.path, paths[i])
		}
		_ = os.Remove(part.path) // it is gone already if all went well
	}
	return err
}

// batch is how many files one call makes or checks: starting ffmpeg takes longer than a file does.
const batch = 8

// inBatches calls work for batches of items, on all processors, and progress after each batch. It
// stops at the first error.
func inBatches[T any](ctx context.Context, items []T, work func(context.Context, []T) error, progress func(done int)) error {
	g, working := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	var mu sync.Mutex
	done := 0
	for some := range slices.Chunk(items, batch) {
		g.Go(func() error {
			if err := working.Err(); err != nil {
				return err
			}
			if err := work(working, some); err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			done += len(some)
			progress(done)
			return nil
		})
	}
	err := g.Wait()
	if err != nil && ctx.Err() != nil {
		return ctx.Err() // rather than the error of a command that it ended
	}
	return err
}
