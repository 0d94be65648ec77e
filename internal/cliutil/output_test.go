package cliutil

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

// full takes a number of bytes and no more.
type full struct{ left int }

func (f *full) Write(p []byte) (int, error) {
	n := min(f.left, len(p))
	f.left -= n
	if n < len(p) {
		return n, errors.New("no space left")
	}
	return n, nil
}

// Output that is lost, the first line or a later one, is the command's error, even if the
// command does not look; and it ends the command, which need not do the rest.
func TestOutputLost(t *testing.T) {
	closed, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	_ = closed.Close()
	pipe, pipeWriter := io.Pipe()
	_ = pipe.Close()
	for _, row := range []struct {
		name  string
		out   io.Writer
		lines int // -1 = until its context ends
		err   error
		code  int
		told  string
	}{
		{"whole", &full{100}, 3, nil, 0, ""},
		{"none", &full{0}, 3, nil, ExitIO, "lines: the output cannot be written: no space left: what the command did is not undone\n"},
		{"some", &full{9}, 3, nil, ExitIO, "no space left"},
		{"its error too", &full{9}, 3, Exitf(ExitTempFail, "full"), ExitIO, "no space left"},
		{"without an end", &full{9}, -1, nil, ExitIO, "no space left"},
		{"a closed pipe", w, -1, nil, 141, ""},
		{"a closed pipe of a test", pipeWriter, -1, errors.New("interrupted"), 141, ""},
	} {
		app := &cli.App{Name: "lines", Action: func(c *cli.Context) error {
			for i := 0; i != row.lines && (row.lines > 0 || c.Context.Err() == nil); i++ {
				fmt.Fprintln(c.App.Writer, "line")
			}
			return row.err
		}}
		var errs bytes.Buffer
		code := Run(context.Background(), app, []string{"lines"}, row.out, &errs)
		if code != row.code || !strings.Contains(errs.String(), row.told) || row.told == "" && errs.Len() > 0 {
			t.Errorf("%s: code %d, said %q; want %d, %q", row.name, code, errs.String(), row.code, row.told)
		}
	}
}
