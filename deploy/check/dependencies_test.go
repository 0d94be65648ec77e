package check

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// required matches a line of go.mod that requires a module; the second group is set where the
// product does so only through another one.
var required = regexp.MustCompile(`(?m)^(?:require)?\s+(\S+\.\S+/\S+) v\S+( // indirect)?$`)

// explained matches a row of the first table of docs/dependencies.md.
var explained = regexp.MustCompile(`(?m)^\| ([a-z0-9.]+\.[a-z]+/\S+) \|`)

func TestDependenciesAreExplained(t *testing.T) {
	goMod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile(filepath.Join(root, "docs/dependencies.md"))
	if err != nil {
		t.Fatal(err)
	}
	reasons := map[string]bool{}
	for _, m := range explained.FindAllSubmatch(doc, -1) {
		reasons[string(m[1])] = true
	}
	if len(reasons) == 0 {
		t.Fatal("found no table in docs/dependencies.md")
	}
	known := map[string]bool{}
	for _, m := range required.FindAllSubmatch(goMod, -1) {
		module, direct := string(m[1]), len(m[2]) == 0
		known[module] = true
		if direct && !reasons[module] {
			t.Errorf("go.mod requires %s; docs/dependencies.md gives no reason", module)
		}
	}
	for module := range reasons {
		if !known[module] {
			t.Errorf("docs/dependencies.md explains %s, which go.mod does not require", module)
		}
	}
}
