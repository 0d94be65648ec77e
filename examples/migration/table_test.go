package migration

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestTheTableIsComplete: each function, method, type, variable, constant and field that asynq
// exports has its row, so a new version of asynq needs rows for what it adds; and there is no row
// for what asynq does not have.
func TestTheTableIsComplete(t *testing.T) {
	doc, err := os.ReadFile("../../docs/migrating-from-asynq.md")
	if err != nil {
		t.Fatal(err)
	}
	inTable := map[string]bool{}
	span := regexp.MustCompile("`([^`]+)`")
	for line := range strings.Lines(string(doc)) {
		if cells := strings.Split(line, "|"); len(cells) > 2 { // the first cell of a row
			for _, m := range span.FindAllStringSubmatch(cells[1], -1) {
				inTable[m[1]] = true
			}
		}
	}
	exported := asynqExports(t)
	if len(exported) < 200 {
		t.Fatalf("found only %d exported names of asynq", len(exported))
	}
	for _, name := range exported {
		typ, _, _ := strings.Cut(name, ".")
		if !inTable[name] && !inTable[typ+".*"] {
			t.Errorf("docs/migrating-from-asynq.md has no row for asynq.%s", name)
		}
	}
	for name := range inTable {
		if typ, all := strings.CutSuffix(name, ".*"); !slices.Contains(exported, name) && !(all && slices.Contains(exported, typ)) {
			t.Errorf("docs/migrating-from-asynq.md has a row for %s, which asynq does not export", name)
		}
	}
}

// asynqExports lists what the asynq of go.mod exports: "Name", "Type.Method" and "Type.Field".
func asynqExports(t *testing.T) (names []string) {
	t.Helper()
	list, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{$d := .Dir}}{{range .GoFiles}}{{$d}}/{{.}}\n{{end}}", "github.com/hibiken/asynq").Output()
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for name := range strings.FieldsSeq(string(list)) {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	add := func(of string, ids ...*ast.Ident) {
		for _, id := range ids {
			if id.IsExported() {
				names = append(names, of+id.Name)
			}
		}
	}
	for _, file := range files {
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				of := ""
				if d.Recv != nil {
					recv := d.Recv.List[0].Type
					if star, ok := recv.(*ast.StarExpr); ok {
						recv = star.X
					}
					if of = recv.(*ast.Ident).Name + "."; !ast.IsExported(of) {
						continue
					}
				}
				add(of, d.Name)
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.ValueSpec:
						add("", s.Names...)
					case *ast.TypeSpec:
						if add("", s.Name); !s.Name.IsExported() {
							continue
						}
						var fields *ast.FieldList
						switch typ := s.Type.(type) {
						case *ast.StructType:
							fields = typ.Fields
						case *ast.InterfaceType:
							fields = typ.Methods
						default:
							continue
						}
						for _, f := range fields.List {
							add(s.Name.Name+".", f.Names...)
						}
					}
				}
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
