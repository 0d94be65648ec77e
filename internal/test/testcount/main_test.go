package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// module is what TestCount runs: a package that passes, and one for each way in which one can fail.
var module = map[string]string{
	"go.mod": "module example.com/counted\n\ngo 1.26\n",
	"good/a_test.go": `package good

import "testing"

func TestPasses(t *testing.T) { t.Log("of no interest") }

func TestParent(t *testing.T) {
	for _, name := range []string{"one", "two"} {
		t.Run(name, func(t *testing.T) { t.Parallel() })
	}
}

func TestSkips(t *testing.T) { t.Skip("for want of a moon") }

func TestSkipsToo(t *testing.T) { t.Skipf("for want of a %s", "moon") }
`,
	"bad/a_test.go": `package bad

import "testing"

func TestPasses(t *testing.T) { t.Log("of no interest") }

func TestFails(t *testing.T) {
	t.Run("good", func(t *testing.T) { t.Log("of no interest") })
	t.Run("bad", func(t *testing.T) { t.Error("what is wrong") })
}
`,
	"panics/a_test.go": `package panics

import "testing"

func TestPanics(t *testing.T) { panic("oh dear") }
`,
	"ends/a_test.go": `package ends

import ("os"; "testing")

func TestMain(m *testing.M) { println("no time"); os.Exit(3) }

func TestNever(t *testing.T) {}
`,
	"broken/a_test.go": "package broken\n\nfunc TestBroken(t *testing.T) {}\n",
	"none/a.go":        "package none\n",
}

// TestCount counts a real run of go test. Each way to fail is counted, printed, and the exit code
// tells of it.
func TestCount(t *testing.T) {
	dir := t.TempDir()
	for name, text := range module {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv(tallyVar, filepath.Join(dir, "tally"))
	for _, tc := range []struct {
		of   string
		code int
		last string
		says []string
	}{
		{"./good", 0, "4 passed, 0 failed, 2 skipped", []string{"ok  \texample.com/counted/good\t", "skipped:\n     2  for want of a moon\n"}},
		{"./none", 0, "0 passed, 0 failed, 0 skipped", []string{"?   \texample.com/counted/none\t[no test files]\n"}},
		{"./bad", 1, "2 passed, 2 failed, 0 skipped", []string{"--- FAIL: TestFails", "--- FAIL: TestFails/bad", "what is wrong", "FAIL\texample.com/counted/bad\t"}},
		{"./panics", 1, "0 passed, 1 failed, 0 skipped", []string{"panic: oh dear", "a_test.go:5", "FAIL\texample.com/counted/panics\t"}},
		{"./ends", 1, "0 passed, 1 failed, 0 skipped", []string{"no time", "FAIL\texample.com/counted/ends\t"}},
		{"./broken", 1, "0 passed, 1 failed, 0 skipped", []string{"undefined: testing", "[build failed]"}},
		{"./nowhere", 1, "0 passed, 1 failed, 0 skipped", []string{"nowhere"}},
		{"./...", 1, "6 passed, 5 failed, 2 skipped", []string{"ok  \texample.com/counted/good\t", "what is wrong", "oh dear", "undefined: testing"}},
	} {
		var out, errs bytes.Buffer
		code, err := run([]string{"-in", dir, "-vet=off", tc.of}, &out, &errs)
		text := errs.String() + out.String()
		lines := strings.Split(strings.TrimSpace(text), "\n")
		if err != nil || code != tc.code || lines[len(lines)-1] != tc.last {
			t.Errorf("%s: exit code %d, %v, last line %q; want %d, %q; all of it:\n%s", tc.of, code, err, lines[len(lines)-1], tc.code, tc.last, text)
		}
		for _, want := range tc.says {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q in\n%s", tc.of, want, text)
			}
		}
		if strings.Contains(text, "of no interest") || strings.Contains(text, "=== RUN") {
			t.Errorf("%s: says what nobody wants to know:\n%s", tc.of, text)
		}
	}
	tally, err := os.ReadFile(filepath.Join(dir, "tally"))
	if want := "4 0 2\n0 0 0\n2 2 0\n0 1 0\n0 1 0\n0 1 0\n0 1 0\n6 5 2\n"; err != nil || string(tally) != want {
		t.Errorf("the tally is %q, %v; want %q", tally, err, want)
	}
}
