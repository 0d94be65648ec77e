// Testcount runs `go test` with the arguments that it is given, prints what that prints, and ends
// with a line that says how many tests ran, subtests included:
//
//	go run ./internal/test/testcount -race ./...
//	…
//	1234 passed, 0 failed, 5 skipped
//
// Before that line it says why tests were skipped. A package that does not compile, or ends before
// its tests do, counts as a failed test. -in DIR, as the first argument, tests the module in DIR.
// The exit code is 0 if nothing failed.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
)

// tallyVar names a file to which the numbers are added as well, as a line "PASSED FAILED SKIPPED",
// for whoever runs testcount twice.
const tallyVar = "JOBSHAPER_TALLY"

func main() {
	code, err := run(os.Args[1:], os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testcount:", err)
		code = 2
	}
	os.Exit(code)
}

func run(args []string, stdout, stderr io.Writer) (code int, err error) {
	dir := ""
	if len(args) > 1 && args[0] == "-in" {
		dir, args = args[1], args[2:]
	}
	test := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	test.Dir, test.Stderr = dir, stderr
	events, err := test.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := test.Start(); err != nil {
		return 0, err
	}
	// Go test gets it too, and ends; what it prints then is still read.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	c := newCount(stdout)
	err = c.read(events)
	var exit *exec.ExitError
	if ended := test.Wait(); errors.As(ended, &exit) {
		code = exit.ExitCode()
	} else if ended != nil {
		return 0, ended
	}
	if err != nil {
		return 0, fmt.Errorf("reading what go test -json prints: %w", err)
	}
	c.close(code != 0)
	if path := os.Getenv(tallyVar); path != "" {
		if err := appendLine(path, fmt.Sprintln(c.passed, c.failed, c.skipped)); err != nil {
			return 0, err
		}
	}
	return code, nil
}

func appendLine(path, line string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line)
	return errors.Join(err, f.Close())
}

// event is a line of `go test -json`, see `go doc test2json` and `go help buildjson`.
type event struct {
	Action, Package, Test, Output string
}

// count follows the events of a run.
type count struct {
	out                     io.Writer
	packages                map[string]*tested
	reasons                 map[string]int // why tests were skipped
	passed, failed, skipped int
}

// tested is a package whose tests run.
type tested struct {
	failed bool                // a test of it
	order  []string            // of the tests that have said something
	said   map[string][]string // by tests that have not passed; "" is the package itself
}

func newCount(out io.Writer) *count {
	return &count{out: out, packages: map[string]*tested{}, reasons: map[string]int{}}
}

func (c *count) read(events io.Reader) error {
	for lines := bufio.NewReader(events); ; {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) == nil {
				c.note(e)
			} else {
				fmt.Fprintf(c.out, "%s", line) // what a test wrote past the testing package
			}
		}
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func (c *count) note(e event) {
	if e.Action == "build-output" {
		fmt.Fprint(c.out, e.Output)
		return
	}
	p := c.packages[e.Package]
	if p == nil {
		p = &tested{said: map[string][]string{}}
		c.packages[e.Package] = p
	}
	switch {
	case e.Action == "output":
		if _, known := p.said[e.Test]; !known {
			p.order = append(p.order, e.Test)
		}
		p.said[e.Test] = append(p.said[e.Test], e.Output)
	case e.Test != "":
		c.ended(p, e)
	case e.Action == "pass", e.Action == "skip", e.Action == "fail":
		c.packageEnded(p, e)
		delete(c.packages, e.Package)
	}
}

// ended records how a test ended.
func (c *count) ended(p *tested, e event) {
	switch e.Action {
	case "run":
		p.order, p.said[e.Test] = append(p.order, e.Test), []string{}
	case "pass":
		c.passed++
		delete(p.said, e.Test)
	case "skip":
		c.skipped++
		c.reasons[reason(p.said[e.Test])]++
		delete(p.said, e.Test)
	case "fail":
		c.failed++
		p.failed = true
	}
}

// packageEnded prints the line of a package that passed, and, of one that failed, all that failed
// tests said.
func (c *count) packageEnded(p *tested, e event) {
	own := p.said[""]
	delete(p.said, "")
	if e.Action != "fail" {
		for _, line := range own {
			if !strings.HasPrefix(line, "PASS\n") && (strings.HasPrefix(line, "ok  ") || strings.HasPrefix(line, "?   ") || strings.HasPrefix(line, "\t")) {
				fmt.Fprint(c.out, line)
			}
		}
		return
	}
	if !p.failed {
		c.failed++
	}
	for _, test := range p.order {
		// Its result comes last, and is what to read first.
		isResult := func(line string) bool { return strings.HasPrefix(strings.TrimSpace(line), "--- FAIL: ") }
		for _, result := range []bool{true, false} {
			for _, line := range p.said[test] {
				if !strings.HasPrefix(line, "=== ") && isResult(line) == result {
					fmt.Fprint(c.out, line)
				}
			}
		}
		delete(p.said, test) // a test that runs again, with -count, is in order twice
	}
	for _, line := range own {
		fmt.Fprint(c.out, line)
	}
}

// reason is what a skipped test said last before its result.
func reason(said []string) string {
	for _, line := range slices.Backward(said) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "---") || strings.HasPrefix(line, "===") {
			continue
		}
		if _, text, ok := strings.Cut(line, ".go:"); ok { // after the file and the line
			_, line, _ = strings.Cut(text, ": ")
		}
		return line
	}
	return "no reason was given"
}

// close prints the last lines. failed says that go test itself reported a failure.
func (c *count) close(failed bool) {
	if failed && c.failed == 0 {
		c.failed++
	}
	if c.skipped > 0 {
		fmt.Fprintln(c.out, "skipped:")
		why := make([]string, 0, len(c.reasons))
		for text := range c.reasons {
			why = append(why, text)
		}
		slices.SortFunc(why, func(a, b string) int { return c.reasons[b] - c.reasons[a] })
		for _, text := range why {
			fmt.Fprintf(c.out, "%6d  %s\n", c.reasons[text], text)
		}
	}
	fmt.Fprintf(c.out, "%d passed, %d failed, %d skipped\n", c.passed, c.failed, c.skipped)
}
