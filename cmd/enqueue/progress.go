package main

import (
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/jobshaper/jobshaper/internal/app/cmdline"
	"github.com/jobshaper/jobshaper/internal/cliutil"
)

// progress shows on a terminal how far a batch has come; elsewhere it does nothing.
type progress struct{ bar *progressbar.ProgressBar }

// newProgress makes a bar over size bytes, or one without an end if size is negative.
func newProgress(w io.Writer, size int64) *progress {
	columns, ok := cmdline.Terminal(w)
	if !ok {
		return &progress{}
	}
	return &progress{progressbar.NewOptions64(size,
		progressbar.OptionSetWriter(w), progressbar.OptionSetWidth(max(10, min(columns-60, 40))),
		progressbar.OptionSetDescription("0 jobs"), progressbar.OptionShowBytes(true), progressbar.OptionClearOnFinish(),
		progressbar.OptionThrottle(100*time.Millisecond),
	)}
}

// reading counts what is read from r.
func (p *progress) reading(r io.Reader) io.Reader {
	if p.bar == nil {
		return r
	}
	return io.TeeReader(r, p.bar)
}

// jobs shows how many jobs were answered.
func (p *progress) jobs(n int) {
	if p.bar != nil {
		p.bar.Describe(fmt.Sprintf("%d jobs", n))
	}
}

// above prints a line in which no pieces of the bar are left.
func (p *progress) above(w io.Writer, line string) {
	if p.bar != nil {
		_ = p.bar.Clear() // a bar is only for show
	}
	fmt.Fprintln(w, cliutil.Printable(line))
}

func (p *progress) close() {
	if p.bar != nil {
		_ = p.bar.Finish()
	}
}
