package cmdline

import (
	"io"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/jobshaper/jobshaper/internal/cliutil"
)

// Terminal reports whether w is a terminal, and how many columns it has.
func Terminal(w io.Writer) (columns int, ok bool) {
	columns, _, ok = Screen(w)
	return columns, ok
}

// Screen reports whether w is a terminal, and its size; 80 × 24 where it does not say.
func Screen(w io.Writer) (columns, rows int, ok bool) {
	if o, ok := w.(*cliutil.Output); ok {
		w = o.Unwrap()
	}
	f, isFile := w.(*os.File)
	if !isFile || !term.IsTerminal(int(f.Fd())) || os.Getenv("TERM") == "dumb" {
		return 0, 0, false
	}
	columns, rows, err := term.GetSize(int(f.Fd()))
	if err != nil || columns <= 0 || rows <= 2 {
		columns, rows = 80, 24
	}
	return columns, rows, true
}

// When shows people an instant and how far it is from now; "" for none.
func When(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	d := time.Until(t)
	far := d.Abs().Round(10 * time.Millisecond).String()
	if d > 0 {
		return t.Format("2006-01-02 15:04:05.000") + ", in " + far
	}
	return t.Format("2006-01-02 15:04:05.000") + ", " + far + " ago"
}
