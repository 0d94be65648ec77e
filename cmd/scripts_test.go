// Package cmd_test runs both programs as a user does: testdata/*.txtar are command lines with what
// they print and how they exit, on a Redis of their own or on the embedded store. They log in to
// that Redis as the user of deploy/users.acl, who may do no more than they need.
package cmd_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/jobshaper/jobshaper/internal/test/redistest"
	"github.com/jobshaper/jobshaper/internal/test/testenv"
)

// bin is where the programs are, built once for all scripts.
var bin string

func TestMain(m *testing.M) {
	testenv.Abreast(4)
	// What a shell runs in its background ignores interrupts, and so would the daemons here, which
	// are interrupted twice. A process that catches a signal starts others that do not ignore it.
	if signal.Ignored(os.Interrupt) {
		signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	}
	os.Exit(func() int {
		var err error
		if bin, err = os.MkdirTemp("", "shaper-bin-"); err != nil {
			panic(err)
		}
		defer os.RemoveAll(bin)
		build := exec.Command("go", "build", "-ldflags", "-X main.version=v1.2.3-test", "-o", bin, "./shaper", "./enqueue")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}

func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if slices.Contains([]string{"demo", "unseen", "verify"}, name) {
				testenv.Long(t, "lasts several seconds of starts")
			}
			server := redistest.Start(t, redistest.Args("--aclfile", users))
			if err := server.Client().Do(t.Context(), "ACL", "SETUSER", "shaper", ">"+password).Err(); err != nil {
				t.Fatal(err)
			}
			url := fmt.Sprintf("redis://shaper:%s@%s/0", password, server.Addr())
			testscript.Run(t, testscript.Params{
				Files: []string{file},
				Setup: func(e *testscript.Env) error {
					e.Setenv("PATH", bin+string(os.PathListSeparator)+e.Getenv("PATH"))
					e.Setenv("REDIS", url)
					e.Setenv("SHAPER_DATA_DIR", filepath.Join(e.WorkDir, "data"))
					return nil
				},
				Cmds: map[string]func(*testscript.TestScript, bool, []string){
					"until":    until,
					"snapshot": func(ts *testscript.TestScript, _ bool, args []string) { snapshot(ts, server.Client(), args) },
					"redis":    func(ts *testscript.TestScript, neg bool, args []string) { ask(ts, url, neg, args) },
					"admin":    func(ts *testscript.TestScript, neg bool, args []string) { ask(ts, server.URL(), neg, args) },
					"pairs":    pairs,
					"repeat":   repeat,
				},
			})
			if refused := file == "testdata/users.txtar" || file == "testdata/doctor.txtar"; !refused {
				denials(t, server.Client())
			}
		})
	}
}

// users is the file of the least-privileged user, and password that user's.
var users = func() string {
	path, err := filepath.Abs("../deploy/users.acl")
	if err != nil {
		panic(err)
	}
	return path
}()

const password = "s3cret-redis"

// denials fails the test for each thing that the user was refused. Some would not show otherwise:
// those of calls that a script makes in a pcall, and those that are only logged.
func denials(t *testing.T, rdb *redis.Client) {
	entries, err := rdb.ACLLog(context.Background(), 100).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		t.Errorf("the user of deploy/users.acl was refused %s %q (%s), %d times", e.Reason, e.Object, e.Context, e.Count)
	}
}

// ask sends a command as the user of a URL: redis COMMAND ARG… must be answered, ! redis COMMAND
// ARG… refused for lack of rights.
func ask(ts *testscript.TestScript, url string, refused bool, args []string) {
	o, err := redis.ParseURL(url)
	ts.Check(err)
	rdb := redis.NewClient(o)
	defer rdb.Close()
	words := make([]any, len(args))
	for i, a := range args {
		words[i] = a
	}
	answer, err := rdb.Do(context.Background(), words...).Result()
	denied := err != nil && (strings.HasPrefix(err.Error(), "NOPERM") || strings.HasPrefix(err.Error(), "ERR The user executing the script can't"))
	if denied != refused || err != nil && !denied && err != redis.Nil {
		ts.Fatalf("%q: %v, %v", args, answer, err)
	}
}

// until runs a command again and again until it succeeds and prints what matches: until PATTERN
// COMMAND ARG…
func until(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: until PATTERN COMMAND ARG...")
	}
	pattern := regexp.MustCompile(args[0])
	deadline := time.Now().Add(testenv.Patience)
	for {
		err := ts.Exec(args[1], args[2:]...)
		if err == nil && pattern.MatchString(ts.ReadFile("stdout")) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%q never printed %q: %v", args[1:], args[0], err)
		}
		time.Sleep(30 * time.Millisecond)
	}
}

// snapshot writes every key of the Redis with its value to a file: snapshot FILE
func snapshot(ts *testscript.TestScript, rdb *redis.Client, args []string) {
	ctx := context.Background()
	keys, err := rdb.Keys(ctx, "*").Result()
	ts.Check(err)
	slices.Sort(keys)
	var b strings.Builder
	for _, key := range keys {
		value, err := rdb.Dump(ctx, key).Result()
		ts.Check(err)
		fmt.Fprintf(&b, "%s %x\n", key, value)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(b.String()), 0o600))
}

// pairs checks that the last stdout has a JSON string field with these values, in this order: pairs
// FIELD VALUE…
func pairs(ts *testscript.TestScript, _ bool, args []string) {
	re := regexp.MustCompile(`"` + args[0] + `":"([^"]*)"`)
	var got []string
	for _, m := range re.FindAllStringSubmatch(ts.ReadFile("stdout"), -1) {
		got = append(got, m[1])
	}
	if !slices.Equal(got, args[1:]) {
		ts.Fatalf("%s: got %q, want %q", args[0], got, args[1:])
	}
}

// repeat writes a text N times to a file: repeat N TEXT FILE
func repeat(ts *testscript.TestScript, _ bool, args []string) {
	var n int
	_, err := fmt.Sscan(args[0], &n)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[2]), []byte(strings.Repeat(args[1], n)), 0o600))
}
