package choose

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/jobshaper/jobshaper/internal/config"
	"github.com/jobshaper/jobshaper/policing"
)

// leaves are the choices with the answers that lead to them.
var leaves = []struct {
	answers string // in the order of the questions
	want    string
}{
	{"yes", "leaky-queue"},
	{"no yes", "fixed-window"},
	{"no no no", "leaky-bucket"},
	{"no no yes yes", "token-bucket"},
	{"no no yes no yes", "sliding-log"},
	{"no no yes no no", "sliding-counter"},
}

func TestWalk(t *testing.T) {
	for _, l := range leaves {
		asked := strings.NewReader(strings.ReplaceAll(l.answers, " ", "\nwhat?\n"))
		choice, err := Walk(t.Context(), nil, asked, io.Discard, true)
		if err != nil || choice.Algorithm != l.want {
			t.Errorf("%s: %+v, %v, want %s", l.answers, choice, err, l.want)
		}
		given := map[string]bool{}
		for i, answer := range strings.Fields(l.answers) {
			given[Questions()[i].Flag] = answer == "yes"
		}
		if choice, err := Walk(t.Context(), given, strings.NewReader(""), io.Discard, false); err != nil || choice.Algorithm != l.want {
			t.Errorf("%v: %+v, %v, want %s", given, choice, err, l.want)
		}
	}
}

func TestWalkUnanswered(t *testing.T) {
	if _, err := Walk(t.Context(), nil, strings.NewReader("no\n"), io.Discard, false); !errors.Is(err, ErrUnanswered) || !strings.Contains(err.Error(), "--daily-quota") {
		t.Errorf("%v, want ErrUnanswered and the flag", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	never, end := io.Pipe()
	defer end.Close()
	if _, err := Walk(ctx, nil, never, io.Discard, false); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}

// What a choice tells the user to write can be read.
func TestChoicesAreReady(t *testing.T) {
	for _, l := range leaves {
		choice, err := Walk(t.Context(), nil, strings.NewReader(strings.ReplaceAll(l.answers, " ", "\n")), io.Discard, false)
		if err != nil {
			t.Fatal(err)
		}
		file := "downstreams:\n  d:\n    " + strings.Join(choice.Config, "\n    ") + "\n"
		f, err := config.Parse("f", []byte(file))
		if err != nil {
			t.Errorf("%s: %v in\n%s", choice.Algorithm, err, file)
			continue
		}
		text, isRule := strings.CutPrefix(choice.Run, "--admit '")
		if !isRule {
			continue
		}
		r, err := policing.ParseRule(strings.TrimSuffix(text, "'"))
		if err != nil || r != f.Downstreams[0].Policy.Admit[0] || string(r.Params.Algorithm) != choice.Algorithm {
			t.Errorf("%s: the flag says %v, %v, the file %v", choice.Algorithm, r, err, f.Downstreams[0].Policy.Admit)
		}
	}
}

// The diagram in the docs is the tree.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile("../../../docs/choosing.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "```mermaid\n"+Mermaid()+"```\n") {
		t.Errorf("docs/choosing.md does not show this tree:\n%s", Mermaid())
	}
	for _, q := range Questions() {
		if !strings.Contains(string(text), q.Text) {
			t.Errorf("docs/choosing.md does not ask: %s", q.Text)
		}
	}
}
