package queue

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// luaSource returns the text of a script's file, or of a piece's.
func luaSource(t *testing.T, name string) string {
	t.Helper()
	if text, ok := given[name]; ok {
		return text
	}
	b, err := files.ReadFile("lua/" + name + ".lua")
	if errors.Is(err, fs.ErrNotExist) {
		b, err = files.ReadFile("lua/lib/" + name + ".lua")
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// one returns the only match of an expression's group in a script.
func one(t *testing.T, name, expr string) string {
	t.Helper()
	m := regexp.MustCompile(expr).FindAllStringSubmatch(luaSource(t, name), -1)
	if len(m) != 1 {
		t.Fatalf("%s.lua: %d matches of %s, want 1", name, len(m), expr)
	}
	return m[0][1]
}

func TestConstantsTwin(t *testing.T) {
	number := func(name, expr string) float64 {
		v, err := strconv.ParseFloat(one(t, name, expr), 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, c := range []struct {
		name, expr string
		want       float64
	}{
		{"base", `local BATCH = (\d+)`, Batch},
		{"base", `local BUDGET = (\d+)`, Budget},
		{"base", `local FOREVER = (\S+)`, Forever},
	} {
		if got := number(c.name, c.expr); got != c.want {
			t.Errorf("%s.lua: %s is %v, and %v in Go", c.name, c.expr, got, c.want)
		}
	}
	if !strings.Contains(luaSource(t, "base"), "PREFIX .. '"+Queue{}.SignalChannel()+"'") {
		t.Errorf("base.lua does not name the channel %s", Queue{}.SignalChannel())
	}
}

// Scripts are constants: nothing is formatted into their text, and all run through one place.
func TestNothingIsWrittenIntoScripts(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	scripts := 0
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		src := string(b)
		scripts += strings.Count(src, "NewScript(")
		for _, word := range []string{".Eval(", ".EvalRO(", ".ScriptLoad("} {
			if strings.Contains(src, word) {
				t.Errorf("%s calls %s", f, word)
			}
		}
		for _, m := range regexp.MustCompile(`= script\((.*)\)`).FindAllStringSubmatch(src, -1) {
			if !regexp.MustCompile(`^"\w+"$`).MatchString(m[1]) {
				t.Errorf("%s makes a script of %s", f, m[1])
			}
		}
	}
	if scripts != 1 {
		t.Errorf("%d places make a script, want one", scripts)
	}
	if b, _ := os.ReadFile("scripts.go"); !strings.Contains(string(b), "redis.NewScript(src)") {
		t.Error("a script is more than the text of its files")
	}
}
