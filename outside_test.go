package jobshaper

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jobshaper/jobshaper/internal/test/testenv"
)

const module = "github.com/jobshaper/jobshaper"

// TestOutside compiles and runs the examples in a module of their own, like a user's: what they
// need can be imported there and, except for the HTTP middleware, from the root package alone.
func TestOutside(t *testing.T) {
	testenv.Long(t, "compiles a module of its own")
	t.Parallel()
	here, err := os.Getwd()
	must(t, err)
	dir := t.TempDir()
	for _, name := range []string{"example_test.go", "example_http_test.go"} {
		source, err := os.ReadFile(name)
		must(t, err)
		must(t, os.WriteFile(filepath.Join(dir, name), source, 0o644))
		file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.ImportsOnly)
		must(t, err)
		for _, i := range file.Imports {
			path, err := strconv.Unquote(i.Path.Value)
			must(t, err)
			if strings.HasPrefix(path, module+"/") && !(name == "example_http_test.go" && strings.HasPrefix(path, module+"/policing")) {
				t.Errorf("%s imports %s, want the root package alone", name, path)
			}
		}
	}
	ours, err := os.ReadFile("go.mod")
	must(t, err)
	// The same go directive and the same requirements, so that no proxy is asked for anything.
	theirs := strings.Replace(string(ours), "module "+module, "module example.org/outside", 1)
	theirs += "\nrequire " + module + " v0.0.0\n\nreplace " + module + " => " + strconv.Quote(here) + "\n"
	must(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte(theirs), 0o644))
	sums, err := os.ReadFile("go.sum")
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "go.sum"), sums, 0o644))

	ctx, cancel := context.WithTimeout(t.Context(), 5*testenv.Patience) // it compiles
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-v", "-vet=off", "-run", "^Example", ".")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off", "GOTOOLCHAIN=local")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if n := strings.Count(string(out), "--- PASS: Example"); n < 6 {
		t.Errorf("%d examples ran, want 6\n%s", n, out)
	}
}

// TestReadme: the Go program that the README shows is Example, word for word, so it runs.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	must(t, err)
	_, section, found := strings.Cut(string(readme), "\n## From Go\n")
	shown := regexp.MustCompile("(?s)\n```go\n(.*?)```\n").FindAllStringSubmatch(strings.SplitN(section, "\n## ", 2)[0], -1)
	if !found || len(shown) != 1 {
		t.Fatalf("%d blocks of Go in the section From Go, want one", len(shown))
	}
	source, err := os.ReadFile("example_test.go")
	must(t, err)
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "example_test.go", source, 0)
	must(t, err)
	for _, decl := range file.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok && f.Name.Name == "Example" {
			body := string(source[fset.Position(f.Body.Lbrace).Offset+2 : fset.Position(f.Body.Rbrace).Offset])
			body, _, _ = strings.Cut(body, "\t// Output:\n")
			if body = regexp.MustCompile(`(?m)^\t`).ReplaceAllString(body, ""); body != shown[0][1] {
				t.Errorf("the README shows\n%s\nwant the body of Example\n%s", shown[0][1], body)
			}
			return
		}
	}
	t.Error("there is no Example")
}

// TestImportsPointDown holds the picture of docs/architecture.md: no floor imports one above it,
// nor does anything that it imports.
func TestImportsPointDown(t *testing.T) {
	t.Parallel()
	floors := []string{module + "/buckets", module + "/policing", module + "/shaper", module + "/workers", module, module + "/internal/app"}
	for i, floor := range floors {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", floor).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, above := range floors[i+1:] {
			if slices.Contains(strings.Fields(string(out)), above) {
				t.Errorf("%s imports %s", floor, above)
			}
		}
	}
}
