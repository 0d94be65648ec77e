package cliutil

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/jobshaper/jobshaper/internal/test/testenv"
)

// programVar makes this test binary the test program, for tests that need a process.
const programVar = "CLIUTIL_TEST_PROGRAM"

func TestMain(m *testing.M) {
	switch os.Getenv(programVar) {
	case "tree":
		os.Exit(Run(context.Background(), tree(), os.Args, os.Stdout, os.Stderr))
	case "flat":
		os.Exit(Run(context.Background(), flat(), os.Args, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// tree is a program with commands. Each command prints what it got.
func tree() *cli.App {
	shared := func(own ...cli.Flag) []cli.Flag {
		return append(own, FromEnv(
			&cli.StringFlag{Name: "redis", Usage: "`URL`"},
			&cli.BoolFlag{Name: "json"})...)
	}
	return AppExamples(&cli.App{
		Name: "tree", Usage: "a test", Version: "1.2.3",
		Flags: []cli.Flag{&cli.BoolFlag{Name: "verbose", Aliases: []string{"V"}}},
		Commands: []*cli.Command{
			Examples(&cli.Command{
				Name: "run", Usage: "run it",
				Flags: shared(
					FromEnv(&cli.StringFlag{Name: "exec", Aliases: []string{"e"}})[0],
					&cli.DurationFlag{Name: "grace"},
					&cli.IntFlag{Name: "depth"},
					&cli.StringSliceFlag{Name: "role"},
				),
				Action: show("redis", "json", "verbose", "exec", "grace", "depth", "role"),
			}, "# with a target", "tree run --exec 'ffmpeg {input} {{x}}'"),
			{Name: "tenants", Usage: "the tenants", Subcommands: []*cli.Command{
				{Name: "ls", Flags: shared(), Action: show("redis", "json")},
				{Name: "set", Flags: shared(&cli.StringFlag{Name: "rate", Required: true}), Action: func(c *cli.Context) error {
					if _, err := Args(c, "TENANT"); err != nil {
						return err
					}
					return show("redis", "rate")(c)
				}},
			}},
			{Name: "fail", Action: func(c *cli.Context) error {
				switch c.Args().First() {
				case "quiet":
					return &Exit{Code: ExitTempFail}
				case "config":
					return fmt.Errorf("reading: %w", Exitf(ExitConfig, "line %d", 7))
				case "library":
					return cli.Exit("by the library", 69)
				case "child":
					return fmt.Errorf("child: %w", exec.Command("sh", "-c", "exit 64").Run())
				}
				return errors.New("went wrong")
			}},
			{Name: "secret", Hidden: true, Action: show()},
		},
	}, "tree run --json")
}

// flat is a program with arguments and no commands.
func flat() *cli.App {
	return &cli.App{
		Name: "flat", Usage: "a test",
		Flags: append(FromEnv(&cli.DurationFlag{Name: "delay"}),
			&cli.StringFlag{Name: "tenant", Aliases: []string{"t"}},
			&cli.BoolFlag{Name: "json"},
			&cli.StringFlag{Name: "unbound"},
		),
		Action: show("tenant", "delay", "json", "unbound"),
	}
}

// show is an action that prints the flags that are set, then the arguments.
func show(flags ...string) cli.ActionFunc {
	return func(c *cli.Context) error {
		for _, name := range flags {
			if c.IsSet(name) {
				fmt.Fprintf(c.App.Writer, "%s=%v ", name, c.Value(name))
			}
		}
		fmt.Fprintf(c.App.Writer, "%q\n", c.Args().Slice())
		return nil
	}
}

func call(app *cli.App, words ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = Run(context.Background(), app, append([]string{app.Name}, words...), &out, &errs)
	return code, out.String(), errs.String()
}

func TestFlagsAnywhere(t *testing.T) {
	for _, row := range []struct{ line, want string }{
		{"run", `[]`},
		{"run a b", `["a" "b"]`},
		{"run --exec x a", `exec=x ["a"]`},
		{"run a --exec x", `exec=x ["a"]`},
		{"run a --exec=x b", `exec=x ["a" "b"]`},
		{"run a -e x", `exec=x ["a"]`},
		{"run a -exec x", `exec=x ["a"]`}, // the library takes one dash too
		{"--exec x run a", `exec=x ["a"]`},
		{"run -e x --exec y -e=z", `exec=z []`},   // the last one wins
		{"run a --json b", `json=true ["a" "b"]`}, // a switch takes no value
		{"run --json=false a", `json=false ["a"]`},
		{"run --verbose a", `verbose=true ["a"]`}, // a flag of the program, after its command
		{"-V run a", `verbose=true ["a"]`},
		{"run --exec -x a", `exec=-x ["a"]`}, // a value may begin with a dash
		{"run --exec -- a", `exec=-- ["a"]`},
		{"run --exec --json a", `exec=--json ["a"]`},
		{"run --exec --help a", `exec=--help ["a"]`},
		{"run --exec= a", `exec= ["a"]`},
		{"run a -", `["a" "-"]`},
		{"run - --json", `json=true ["-"]`},
		{"run -1 -2.5", `["-1" "-2.5"]`}, // numbers are not flags
		{"run --depth -1 a", `depth=-1 ["a"]`},
		{"run a -- --json -x", `["a" "--json" "-x"]`},
		{"run --json -- --", `json=true ["--"]`},
		{"run --role a x --role b", `role={[a b] false false} ["x"]`},
		{"run tenants", `["tenants"]`},
		{"run help h", `["help" "h"]`}, // no command where none may stand
		{"tenants ls", `[]`},
		{"tenants --redis u ls", `redis=u []`},
		{"--json tenants --redis u ls", `redis=u json=true []`},
		{"tenants set acme --rate 5/s", `rate=5/s ["acme"]`},
		{"tenants --rate 5/s set acme --redis u", `redis=u rate=5/s ["acme"]`},
		{"secret x", `["x"]`},
	} {
		code, stdout, stderr := call(tree(), strings.Fields(row.line)...)
		// A slice prints with the library's own fields around it.
		got := strings.NewReplacer("separator:", "", "slice:", "", "hasBeenSet:", "").Replace(strings.TrimSpace(stdout))
		if strings.Contains(row.line, "--role") {
			if !strings.Contains(got, "[a b]") || !strings.HasSuffix(got, `["x"]`) {
				t.Errorf("%s: %s", row.line, got)
			}
			continue
		}
		if code != ExitOK || got != row.want {
			t.Errorf("%s: code %d\n got %s\nwant %s\n%s", row.line, code, got, row.want, stderr)
		}
	}
	for _, row := range []struct{ line, want string }{
		{"type payload -t acme --json", `tenant=acme json=true ["type" "payload"]`},
		{"help h --delay 5s", `delay=5s ["help" "h"]`}, // a type may have this name
		{"tenant --tenant x", `tenant=x ["tenant"]`},
		{"type @file - -5", `["type" "@file" "-" "-5"]`},
	} {
		if code, stdout, stderr := call(flat(), strings.Fields(row.line)...); code != ExitOK || strings.TrimSpace(stdout) != row.want {
			t.Errorf("flat %s: code %d\n got %swant %s\n%s", row.line, code, stdout, row.want, stderr)
		}
	}
}

func TestUsageErrors(t *testing.T) {
	for _, row := range []struct {
		line string
		want []string
	}{
		{"", []string{"no command: want one of run, tenants, fail", "See tree --help"}},
		{"rnu", []string{`unknown command "rnu": did you mean run?`, "See tree --help"}},
		{"frobnicate", []string{`unknown command "frobnicate"` + "\n"}}, // nothing is near
		{"tenants", []string{"no command: want one of ls, set", "See tree tenants --help"}},
		{"tenants l", []string{`unknown command "l": did you mean ls?`}},
		{"tenants sett acme --rate 1/s", []string{`"sett": did you mean set?`}},
		{"run --exce x", []string{"unknown flag --exce: did you mean --exec?", "See tree run --help"}},
		{"run --jsno", []string{"--jsno: did you mean --json?"}},
		{"run --elephant", []string{"unknown flag --elephant\n"}},
		{"run -x", []string{"unknown flag -x"}},
		{"ls --rate 1/s", []string{`unknown command "ls"`}},
		{"tenants ls --rate 1/s", []string{"unknown flag --rate"}}, // of a neighbour
		{"run --exec", []string{"--exec: no value: want --exec VALUE"}},
		{"run --grace soon", []string{`--grace "soon": want a duration, such as 500ms`, "See tree run --help"}},
		{"run --depth many", []string{`--depth "many": want a whole number`}},
		{"tenants set acme", []string{"missing flag --rate", "See tree tenants set --help"}},
		{"tenants set --rate 1/s", []string{"missing argument TENANT"}},
		{"tenants set --rate 1/s acme other", []string{`unexpected argument "other"`}},
		{"completion csh", []string{`shell "csh": want bash, zsh, fish`}},
	} {
		code, stdout, stderr := call(tree(), strings.Fields(row.line)...)
		if code != ExitUsage || stdout != "" || !strings.HasPrefix(stderr, "tree: ") {
			t.Errorf("%q: code %d, stdout %q, stderr %q; want 64 and all on stderr", row.line, code, stdout, stderr)
		}
		for _, want := range row.want {
			if !strings.Contains(stderr, want) {
				t.Errorf("%q: %q is not in\n%s", row.line, want, stderr)
			}
		}
	}
}

func TestExitCodes(t *testing.T) {
	for _, row := range []struct {
		how    string
		code   int
		stderr string
	}{
		{"plain", ExitFailed, "tree: went wrong\n"},
		{"quiet", ExitTempFail, ""},
		{"config", ExitConfig, "tree: reading: line 7\n"},
		{"library", ExitUnavailable, "tree: by the library\n"},
		{"child", ExitFailed, "tree: child: exit status 64\n"}, // the child's code is not ours
	} {
		if code, stdout, stderr := call(tree(), "fail", row.how); code != row.code || stderr != row.stderr || stdout != "" {
			t.Errorf("%s: code %d, stdout %q, stderr %q; want %d, %q", row.how, code, stdout, stderr, row.code, row.stderr)
		}
	}
}

func TestEnvironment(t *testing.T) {
	t.Setenv("SHAPER_REDIS", "from-env")
	t.Setenv("SHAPER_UNBOUND", "x")
	if _, stdout, stderr := call(tree(), "tenants", "set", "acme", "--rate", "1/s"); stdout != `redis=from-env rate=1/s ["acme"]`+"\n" {
		t.Errorf("flags from the environment: %q, %s", stdout, stderr)
	}
	t.Setenv("SHAPER_RATE", "1/s")
	if code, stdout, stderr := call(tree(), "tenants", "set", "acme"); code != ExitUsage || stdout != "" || !strings.Contains(stderr, "--rate") {
		t.Errorf("a flag that takes no variable: code %d, %q, %q; want it to be missing", code, stdout, stderr)
	}
	if _, stdout, _ := call(tree(), "run", "--redis", "typed"); stdout != "redis=typed []\n" {
		t.Errorf("a typed flag wins over the environment: %q", stdout)
	}
	if _, stdout, _ := call(flat(), "type"); stdout != `["type"]`+"\n" {
		t.Errorf("a flag without a variable: %q", stdout)
	}
	t.Setenv("SHAPER_DELAY", "soon")
	if code, stdout, stderr := call(flat(), "type"); code != ExitUsage || stdout != "" || !strings.Contains(stderr, "SHAPER_DELAY") {
		t.Errorf("a wrong value in the environment: code %d, %q, %q; want 64 and the variable's name", code, stdout, stderr)
	}
}

func TestHelp(t *testing.T) {
	for _, row := range []struct {
		line string
		want []string
	}{
		{"--help", []string{"COMMANDS:", "run it", "EXAMPLES:\n   tree run --json\n"}},
		{"help", []string{"COMMANDS:"}},
		{"run --help", []string{"tree run - run it", "$SHAPER_EXEC", "EXAMPLES:\n   # with a target\n   tree run --exec 'ffmpeg {input} {{x}}'\n"}},
		{"help run", []string{"tree run - run it"}},
		{"run a --depth 3 -h", []string{"tree run - run it"}},
		{"tenants --help", []string{"tree tenants", "COMMANDS:"}},
		{"help tenants set", []string{"tree tenants set", "--rate"}},
		{"tenants set --help", []string{"tree tenants set"}}, // without what is required
	} {
		code, stdout, stderr := call(tree(), strings.Fields(row.line)...)
		if code != ExitOK || stderr != "" {
			t.Errorf("%q: code %d, stderr %q; want 0 and help on stdout", row.line, code, stderr)
		}
		for _, want := range row.want {
			if !strings.Contains(stdout, want) {
				t.Errorf("%q: %q is not in\n%s", row.line, want, stdout)
			}
		}
	}
	if code, stdout, _ := call(tree(), "--version"); code != ExitOK || stdout != "tree 1.2.3\n" {
		t.Errorf("--version: code %d, %q", code, stdout)
	}
	if _, stdout, _ := call(tree(), "--help"); strings.Contains(stdout, "secret") {
		t.Errorf("help shows a hidden command:\n%s", stdout)
	}
}

func TestComplete(t *testing.T) {
	for _, row := range []struct {
		words []string
		want  string
	}{
		{[]string{""}, "run tenants fail completion"},
		{[]string{"t"}, "tenants"},
		{[]string{"tenants", ""}, "ls set"},
		{[]string{"tenants", "s"}, "set"},
		{[]string{"run", "--g"}, "--grace"},
		{[]string{"run", "a", "--json", "--re"}, "--redis"}, // after arguments too
		{[]string{"run", "--verb"}, "--verbose"},
		{[]string{"run", ""}, ""}, // a file may stand here
		{[]string{"run", "--exec", "r"}, ""},
		{[]string{"run", "--exec", "x", "--"}, "--exec --grace --depth --role --redis --json --help --verbose --version"},
		{nil, "run tenants fail completion"},
	} {
		code, stdout, stderr := call(tree(), append([]string{completeWord}, row.words...)...)
		if got := strings.Join(strings.Fields(stdout), " "); code != ExitOK || stderr != "" || got != row.want {
			t.Errorf("%q: code %d, %q, stderr %q; want %q", row.words, code, got, stderr, row.want)
		}
	}
}

// The shells that this machine has run the scripts, on a real process.
func TestCompletionScripts(t *testing.T) {
	program := t.TempDir() + "/tree"
	wrapper := fmt.Sprintf("#!/bin/sh\n%s=tree exec %s \"$@\"\n", programVar, os.Args[0])
	if err := os.WriteFile(program, []byte(wrapper), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, shell := range []struct{ name, ask string }{
		{"bash", `COMP_WORDS=(%[1]s tenants se); COMP_CWORD=2; _tree_complete; echo "${COMPREPLY[*]}"`},
		{"zsh", ``}, // its functions run only inside the line editor: syntax only
		{"fish", `complete -C '%[1]s tenants se'`},
	} {
		t.Run(shell.name, func(t *testing.T) {
			code, script, stderr := call(tree(), "completion", shell.name)
			if code != ExitOK || !strings.Contains(script, "__complete") || strings.Contains(script, "PROG") {
				t.Fatalf("code %d, stderr %q, script:\n%s", code, stderr, script)
			}
			if _, flatScript, _ := call(flat(), "--completion", shell.name); !strings.Contains(flatScript, "flat") {
				t.Errorf("--completion %s of a program without commands: %q", shell.name, flatScript)
			}
			path := testenv.Need(t, shell.name)
			if shell.ask == "" {
				if out, err := exec.Command(path, "-n", "-c", script).CombinedOutput(); err != nil {
					t.Errorf("%v: %s", err, out)
				}
				return
			}
			out, err := exec.Command(path, "-c", script+"\n"+fmt.Sprintf(shell.ask, program)).CombinedOutput()
			if err != nil || strings.TrimSpace(string(out)) != "set" {
				t.Errorf("completing \"tenants se\": %q, %v; want set", out, err)
			}
		})
	}
}

func TestArgs(t *testing.T) {
	for _, row := range []struct {
		args, names string
		want        string // the arguments, or a part of the error
	}{
		{"a", "A", `["a"]`},
		{"", "A", "missing argument A"},
		{"a", "A [B]", `["a" ""]`},
		{"a b", "A [B]", `["a" "b"]`},
		{"a b c", "A [B]", `unexpected argument "c"`},
		{"a b c", "A...", `["a" "b" "c"]`},
		{"", "A...", "missing argument A"},
		{"", "[A...]", `[""]`},
		{"a b", "[A...]", `["a" "b"]`},
		{"a", "", `unexpected argument "a"`},
	} {
		var got string
		app := &cli.App{Name: "x", Action: func(c *cli.Context) error {
			args, err := Args(c, strings.Fields(row.names)...)
			got = fmt.Sprintf("%q", args)
			return err
		}}
		code, _, stderr := call(app, strings.Fields(row.args)...)
		if code == ExitUsage {
			got = stderr
		}
		if !strings.Contains(got, row.want) {
			t.Errorf("%q for %q: %s, want %s", row.args, row.names, got, row.want)
		}
	}
}

func TestContextReachesTheAction(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	want, _ := ctx.Deadline()
	app := &cli.App{Name: "x", Action: func(c *cli.Context) error {
		if got, _ := c.Context.Deadline(); !got.Equal(want) {
			t.Errorf("deadline %v, want %v", got, want)
		}
		return nil
	}}
	Run(ctx, app, []string{"x"}, &bytes.Buffer{}, &bytes.Buffer{})
}

func TestDistance(t *testing.T) {
	for _, row := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"run", "run", 0}, {"rnu", "run", 1}, {"ru", "run", 1}, {"runn", "run", 1},
		{"rin", "run", 1}, {"", "run", 3}, {"kitten", "sitting", 3},
	} {
		if got := distance(row.a, row.b); got != row.want || distance(row.b, row.a) != got {
			t.Errorf("distance(%q, %q) = %d and %d, want %d", row.a, row.b, got, distance(row.b, row.a), row.want)
		}
	}
}

func TestJSONLines(t *testing.T) {
	var out bytes.Buffer
	lines := NewJSONLines(&out)
	for _, v := range []any{map[string]string{"url": "a<b&c"}, struct {
		N int `json:"n"`
	}{7}} {
		if err := lines.Print(v); err != nil {
			t.Fatal(err)
		}
	}
	if want := "{\"url\":\"a<b&c\"}\n{\"n\":7}\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

// FuzzParse: what parse accepts, the library must take without a usage error.
func FuzzParse(f *testing.F) {
	f.Add("run a --exec -- b -- --json")
	f.Add("tenants --rate=1 set x -")
	f.Fuzz(func(t *testing.T, text string) {
		code, _, stderr := call(tree(), strings.Fields(text)...)
		if code == ExitUsage && strings.Contains(stderr, "flag provided but not defined") {
			t.Errorf("%q: parse let an unknown flag pass: %s", text, stderr)
		}
	})
}
