package shaper

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/internal/test/redistest"
)

// The scripts and keys.go build the same names: jobs in every state leave exactly the keys that keys.go knows.
func TestKeysTwin(t *testing.T) {
	w := newWorld(t, redistest.Open(t))
	w.pool("p", 9)
	applied, err := w.admin.Apply(t.Context(),
		DownstreamPolicy{DepartureLog: 100, Admit: rules(t, "fixed_window 3000/d name=each", "fixed_window 5000/d name=all per=downstream")},
		map[string]Policy{"T": {Rate: rate(1000, time.Second)}})
	w.must(err)
	_, err = w.admin.LookAtConfig(t.Context(), applied.Digest, time.Second)
	w.must(err)
	for _, id := range []string{"dead", "done", "running", "out"} {
		w.offer(Spec{Tenant: "T", ID: id})
	}
	w.finish(w.start(), Finish{Ending: EndDead})
	w.finish(w.start(), Finish{Ending: EndOK})
	w.start()
	w.pass(second)
	w.offer(Spec{Tenant: "T", ID: "overtaken"})
	tickets, _, _ := w.release(2)
	if len(tickets) != 2 {
		t.Fatalf("%d tickets", len(tickets))
	}
	displaced, _ := w.enter(tickets[1], "p")
	w.finish(displaced, Finish{Ending: EndBack})
	w.offer(Spec{Tenant: "T", ID: "later", Delay: time.Minute})
	w.offer(Spec{Tenant: "T", ID: "waiting"})
	w.pool("p", 0)
	w.release(1) // the tenant's time has come, and there is no place for it
	w.offer(Spec{Tenant: "U", ID: "due"})

	q := w.q
	want := []string{q.downstreamKey(), q.dueKey(), q.readyKey(), q.outKey(), q.runKey(), q.poolsKey(), q.tenantsKey(), q.logKey(), q.namedKey(), q.configsKey(),
		q.tenantKey("T"), q.waitKey("T"), q.backKey("T"), q.laterKey("T"), q.jobsKey("T"), q.stateKey("T"), q.outsKey("T"), q.deadKey("T"), q.endKey("T", "done"),
		q.receiptKey(displaced.Token),
		q.tenantKey("U"), q.waitKey("U"), q.jobsKey("U"), q.admitKey("each", "T"), q.admitKey("each", "U"), q.admitKey("all", "")}
	got, err := w.rdb.Keys(t.Context(), "*").Result()
	w.must(err)
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("keys in Redis\n%s\nby keys.go\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, k := range want {
		if !strings.HasPrefix(k, "shaper:{"+q.downstream+"}:") {
			t.Errorf("%s does not carry the hash tag of its downstream", k)
		}
	}
	if !strings.Contains(luaSource(t, "base"), "P .. '"+strings.TrimPrefix(q.signalChannel(), q.prefix)+"'") {
		t.Errorf("base.lua does not name the channel %s", q.signalChannel())
	}
}

// luaSource is the text of a script's file, or of a piece.
func luaSource(t *testing.T, name string) string {
	t.Helper()
	b, err := luaFiles.ReadFile("lua/" + name + ".lua")
	if errors.Is(err, fs.ErrNotExist) {
		b, err = luaFiles.ReadFile("lua/lib/" + name + ".lua")
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// one is the only match of an expression's group in a script.
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
		{"base", `local BATCH = (\d+)`, batch},
		{"base", `local FOREVER = (\S+)`, forever},
	} {
		if got := number(c.name, c.expr); got != c.want {
			t.Errorf("%s.lua: %s is %v, and %v in Go", c.name, c.expr, got, c.want)
		}
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
	// What is made of the policies' tables is constant too: lists of their fields, and defaults.
	const word = `'[a-z_:]+'`
	line := regexp.MustCompile(`^(local function (fallback\(field\)|\w+_policy\(\) return ` + word + `(, ` + word + `)* end)|` +
		`  if field == ` + word + ` then return '[\w/-]+' end|end|)$`)
	for l := range strings.SplitSeq(luaFields(), "\n") {
		if !line.MatchString(l) {
			t.Errorf("%q is written into scripts", l)
		}
	}
	if b, _ := os.ReadFile("scripts.go"); !strings.Contains(string(b), "redis.NewScript(src)") {
		t.Error("a script is more than the text of its files")
	}
}
