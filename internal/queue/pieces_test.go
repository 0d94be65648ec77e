package queue

import (
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	gopher "github.com/yuin/gopher-lua"

	"github.com/jobshaper/jobshaper/internal/lua"
)

// Every file includes all that it needs: it compiles with what it includes and nothing else, and
// then uses no name that is not defined. In Redis such a name is an error only on the day that its
// line runs.
func TestPiecesIncludeWhatTheyUse(t *testing.T) {
	known := []string{"redis", "KEYS", "ARGV", "string", "table", "math", "tonumber", "tostring", "ipairs", "pairs", "type", "unpack", "pcall", "error"}
	pieces, err := fs.Glob(files, "lua/lib/*.lua")
	if err != nil || len(pieces) == 0 {
		t.Fatalf("no pieces, %v", err)
	}
	alone := fstest.MapFS{}
	for _, path := range pieces {
		src, err := fs.ReadFile(files, path)
		if err != nil {
			t.Fatal(err)
		}
		alone[path] = &fstest.MapFile{Data: src}
	}
	check := func(from fs.FS, name string) {
		t.Helper()
		text, err := lua.Assemble(from, name, given, nil)
		if err != nil {
			t.Error(err)
			return
		}
		for _, global := range globals(t, name, text) {
			if !slices.Contains(known, global) {
				t.Errorf("%s uses %s, and does not include what defines it", name, global)
			}
		}
	}
	used := map[string]bool{}
	for name := range Scripts {
		check(files, name)
		text, err := lua.Assemble(files, name, given, func(file string, src []byte) []byte { used[file] = true; return src })
		if err != nil || strings.Count(text, "local PREFIX = KEYS[1]") != 1 {
			t.Errorf("%s: %v; want base in it once", name, err)
		}
	}
	for _, path := range pieces {
		piece := strings.TrimSuffix(strings.TrimPrefix(path, "lua/lib/"), ".lua")
		alone["lua/"+piece+".lua"] = &fstest.MapFile{Data: []byte("-- include " + piece + "\n")}
		check(alone, piece)
		if !used[piece] {
			t.Errorf("no script includes %s", path)
		}
	}
	entries, err := fs.Glob(files, "lua/*.lua")
	if err != nil || len(entries) != len(Scripts) {
		t.Errorf("%d files, and %d scripts (%v)", len(entries), len(Scripts), err)
	}
}

// globals lists the names that a script reads or sets and does not define.
func globals(t *testing.T, name, text string) (names []string) {
	t.Helper()
	state := gopher.NewState()
	defer state.Close()
	f, err := state.Load(strings.NewReader(text), name)
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return nil
	}
	var walk func(*gopher.FunctionProto)
	walk = func(p *gopher.FunctionProto) {
		for _, inst := range p.Code {
			if op := int(inst >> 26); op == gopher.OP_GETGLOBAL || op == gopher.OP_SETGLOBAL {
				names = append(names, p.Constants[inst&0x3ffff].String())
			}
		}
		for _, inner := range p.FunctionPrototypes {
			walk(inner)
		}
	}
	walk(f.Proto)
	slices.Sort(names)
	return slices.Compact(names)
}
