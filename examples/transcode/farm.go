package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/jobshaper/jobshaper"
	"github.com/jobshaper/jobshaper/internal/app/verify"
)

// options are what the user asks of a run.
type options struct {
	out     string // directory of the media files
	tool    string // auto, ffmpeg or go
	tenants []tenant
}

// file is one file to transcode, and the job that does it.
type file struct {
	id            string // of the job
	input, output string // paths
}

// payload is what the handler gets: the fields that farm.yaml has as {payload.input} and
// {payload.output}.
func (f file) payload() []byte {
	b, err := json.Marshal(map[string]string{"input": f.input, "output": f.output})
	if err != nil {
		panic(err) // cannot happen with two strings
	}
	return b
}

// farm is one run of the program.
type farm struct {
	tenants []tenant
	tool    tool
	files   map[string][]file // by tenant
	journal *journal
	view    view
	log     *slog.Logger
}

// run is the program. It returns the report that it wrote to out. The error wraps context.Canceled
// if ctx ended the farm: then the report covers what happened until then, and jobs that still
// waited count as cancelled.
func run(ctx context.Context, opts options, out io.Writer) (report, error) {
	begun := time.Now()
	tool, err := chooseTool(opts.tool)
	if err != nil {
		return report{}, err
	}
	v := newView(out)
	f := &farm{tenants: opts.tenants, tool: tool, files: map[string][]file{}, view: v,
		journal: newJournal(opts.tenants, v.note),
		log:     slog.New(slog.NewTextHandler(v, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	v.title(opts.tenants)
	if err := f.prepare(ctx, opts.out); err != nil {
		return report{}, err
	}

	// A program of your own has a Redis already: redis.NewClient(…), with ContextTimeoutEnabled, is
	// all it needs.
	store, err := jobshaper.OpenEmbedded(ctx, "")
	if err != nil {
		return report{}, err
	}
	defer store.Close()
	v.fact("store", store.String())
	queue, err := f.open(store.Client())
	if err != nil {
		return report{}, err
	}

	f.journal.begin()
	v.begin()
	stopped := f.operate(ctx, queue)
	v.end()
	r, err := f.settle(queue.Admin())
	if err != nil {
		return r, errors.Join(stopped, err)
	}
	if stopped == nil {
		stopped = f.check(ctx, &r)
	}
	r.dir, r.took, r.whole = opts.out, time.Since(begun), stopped == nil
	r.print(out)
	return r, errors.Join(stopped, r.verify())
}

// filesOf names the files of a tenant, below dir.
func (f *farm) filesOf(t tenant, dir string) []file {
	var files []file
	for i := range t.bursts * t.burst {
		id := fmt.Sprintf("%s-%03d", t.name, i+1)
		files = append(files, file{id: id,
			input:  filepath.Join(dir, "source", id+f.tool.inputExt),
			output: filepath.Join(dir, t.name, id+f.tool.outputExt)})
	}
	return files
}

// prepare makes the files that the tenants will offer, below dir, and removes outputs of an earlier
// run.
func (f *farm) prepare(ctx context.Context, dir string) error {
	f.view.fact("transcodes", f.tool.about)
	if err := os.MkdirAll(filepath.Join(dir, "source"), 0o777); err != nil {
		return err
	}
	var sources []source
	for _, t := range f.tenants {
		if err := os.MkdirAll(filepath.Join(dir, t.name), 0o777); err != nil {
			return err
		}
		f.files[t.name] = f.filesOf(t, dir)
		for _, one := range f.files[t.name] {
			if err := os.Remove(one.output); err != nil && !os.IsNotExist(err) {
				return err
			}
			sources = append(sources, source{one.input, len(sources)})
		}
	}
	return inBatches(ctx, sources, func(ctx context.Context, some []source) error {
		return makeOnce(ctx, f.tool, some)
	}, func(done int) {
		f.view.step("media", done, len(sources), "files made in "+filepath.Join(dir, "source"))
	})
}

// watch shows what happens until all that was accepted has ended, ctx ends, or something fails.
func (f *farm) watch(ctx context.Context, admin *jobshaper.Admin, produced <-chan error) error {
	tick := time.NewTicker(bin)
	defer tick.Stop()
	for {
		select {
		case err := <-produced:
			if err != nil {
				return err
			}
			produced = nil
		case <-tick.C:
			stats, err := admin.Stats(ctx, true)
			if err != nil {
				return errors.Join(ctx.Err(), err)
			}
			f.view.draw(f.journal.frame(stats))
			if produced == nil && stats.Busy == 0 {
				return nil
			}
		}
	}
}

// settle cancels the jobs that still wait, of which there are none unless the farm was interrupted,
// and reads the final counts.
func (f *farm) settle(admin *jobshaper.Admin) (report, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	r := report{busiest: f.journal.most()}
	for _, t := range f.tenants {
		if _, err := admin.Purge(ctx, t.name); err != nil {
			return r, err
		}
		info, err := admin.Tenant(ctx, t.name)
		if err != nil {
			return r, err
		}
		dead, err := admin.Dead(ctx, t.name, 3)
		if err != nil {
			return r, err
		}
		r.accounts = append(r.accounts, f.journal.account(info))
		for _, job := range dead {
			r.failures = append(r.failures, fmt.Sprintf("%s: %s", job.ID, job.Error))
		}
	}
	v, err := verify.Log(ctx, downstream, admin, verify.Options{})
	if none := (*verify.NoLogError)(nil); errors.As(err, &none) { // interrupted before the first start
		return r, nil
	}
	if err != nil {
		return r, err
	}
	r.checked, r.broken = v.Line(), !v.Held()
	return r, nil
}

// check decodes the output of every job that was done.
func (f *farm) check(ctx context.Context, r *report) error {
	var outputs []string
	for _, t := range f.tenants {
		for _, one := range f.files[t.name] {
			if _, err := os.Stat(one.output); err == nil {
				outputs = append(outputs, one.output)
			}
		}
	}
	r.outputs = len(outputs)
	var mu sync.Mutex // guards r
	decoded := func(n int, err error) {
		mu.Lock()
		defer mu.Unlock()
		r.decoded += n
		if err != nil {
			r.bad = append(r.bad, err)
		}
	}
	return inBatches(ctx, outputs, func(ctx context.Context, some []string) error {
		if f.tool.check(ctx, some) == nil {
			decoded(len(some), nil)
			return nil
		}
		for _, one := range some { // which of them?
			if err := f.tool.check(ctx, []string{one}); err != nil {
				decoded(0, fmt.Errorf("decode %s: %w", one, err))
			} else {
				decoded(1, nil)
			}
		}
		return ctx.Err()
	}, func(done int) { f.view.step("check", done, len(outputs), "outputs read, from start to end") })
}
