package cmd_test

import (
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// scriptTexts are the only expressions that may become the text of a script, by file: embedded
// files, and constants.
var scriptTexts = map[string][]string{
	"buckets/script.go":           {"source", "LuaFunctions() + luaAll", `source + "local ask, write = " + name + ", " + strconv.FormatBool(write) + "\n" + luaEach`},
	"internal/queue/scripts.go":   {"src"},
	"buckets/redisqueue.go":       {"luaChanges + luaTimeline + luaLeakyQueue"},
	"internal/redisurl/rights.go": {"restartProbe"},
	"workers/drainclient.go":      {"mayWrite + script", "addText"}, // script is a constant of asynq's
}

// No value is written into the text of a script, where it could become a command: all scripts are
// made in places that this test knows. And nothing serves pprof or expvar, which reveal memory and
// arguments.
func TestSources(t *testing.T) {
	found := 0
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		rel := filepath.ToSlash(strings.TrimPrefix(path, ".."+string(filepath.Separator)))
		switch {
		case err != nil:
			return err
		case d.IsDir() && (rel == "bench" || strings.HasPrefix(d.Name(), ".") && path != ".." || d.Name() == "testdata"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, imported := range file.Imports {
			if name, _ := strconv.Unquote(imported.Path.Value); name == "net/http/pprof" || name == "expvar" {
				t.Errorf("%s imports %s", rel, name)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			arg, name := -1, ""
			switch f := call.Fun.(type) {
			case *ast.Ident:
				name = f.Name
			case *ast.SelectorExpr:
				name = f.Sel.Name
			}
			switch name {
			case "NewScript", "newScript":
				arg = 0
			case "Eval", "EvalRO", "ScriptLoad", "FunctionLoad":
				arg = 1
			}
			if arg < 0 || arg >= len(call.Args) {
				return true
			}
			found++
			if text := printed(fset, call.Args[arg]); !slices.Contains(scriptTexts[rel], text) {
				t.Errorf("%s makes a script of %s", fset.Position(call.Pos()), text)
			}
			return true
		})
		return nil
	})
	if err != nil || found < 5 {
		t.Errorf("%d scripts found, %v", found, err)
	}
}

// printed is the source of an expression.
func printed(fset *token.FileSet, e ast.Expr) string {
	var b strings.Builder
	if err := printer.Fprint(&b, fset, e); err != nil {
		return err.Error()
	}
	return b.String()
}
