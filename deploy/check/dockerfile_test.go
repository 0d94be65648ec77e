package check

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

// stages parses deploy/Dockerfile and returns its two stages.
func stages(t *testing.T) (build, image instructions.Stage) {
	t.Helper()
	f, err := os.Open(filepath.Join(root, "deploy/Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tree, err := parser.Parse(f)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range tree.Warnings {
		t.Errorf("warning: %s", w.Short)
	}
	all, _, err := instructions.Parse(tree.AST, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 2 {
		t.Fatalf("%d stages, want 2", len(all))
	}
	return all[0], all[1]
}

// find returns the commands of a stage that are of one kind.
func find[T instructions.Command](s instructions.Stage) []T {
	var found []T
	for _, c := range s.Commands {
		if c, ok := c.(T); ok {
			found = append(found, c)
		}
	}
	return found
}

func TestDockerfileBuild(t *testing.T) {
	build, _ := stages(t)
	if !pinned.MatchString(build.BaseName) {
		t.Errorf("base image %q is not pinned to a version", build.BaseName)
	}
	var commands []string
	for _, c := range find[*instructions.RunCommand](build) {
		commands = append(commands, strings.Join(c.CmdLine, " "))
	}
	last := commands[len(commands)-1]
	for _, want := range []string{"CGO_ENABLED=0", "-trimpath", "-X main.version=${VERSION}", "./cmd/shaper", "./cmd/enqueue"} {
		if !strings.Contains(last, want) {
			t.Errorf("the build lacks %q: %s", want, last)
		}
	}
}

func TestDockerfileImage(t *testing.T) {
	_, image := stages(t)
	if image.BaseName != "scratch" {
		t.Errorf("base image %q, want scratch", image.BaseName)
	}
	if users := find[*instructions.UserCommand](image); len(users) != 1 || users[0].User != "65532:65532" {
		t.Errorf("USER: %v, want 65532:65532; scratch knows no names", users)
	}
	if e := find[*instructions.EntrypointCommand](image); len(e) != 1 || e[0].PrependShell || !slices.Equal(e[0].CmdLine, []string{"/shaper"}) {
		t.Errorf("ENTRYPOINT: %v, want /shaper without a shell", e)
	}
	if c := find[*instructions.CmdCommand](image); len(c) != 1 || c[0].PrependShell {
		t.Errorf("CMD: %v, want one without a shell", c)
	}
	var copied []string
	for _, c := range find[*instructions.CopyCommand](image) {
		copied = append(copied, c.SourcePaths...)
	}
	for _, want := range []string{"/out/shaper", "/out/enqueue", "/etc/ssl/certs/ca-certificates.crt"} {
		if !slices.Contains(copied, want) {
			t.Errorf("%s is not copied into the image", want)
		}
	}
	if runs := find[*instructions.RunCommand](image); len(runs) > 0 {
		t.Errorf("RUN in an image without a shell: %v", runs)
	}
}
