// Package lua makes one script from a file and the pieces that it includes.
//
// A line
//
//	-- include NAME NAME …
//
// stands for the pieces lib/NAME.lua, in that order, each with what it includes itself. A piece is
// put in only once, where it is first asked for; so a script may handle its common case before the
// line, and spare itself the rest. Everything else of a file is left as it is.
package lua

import (
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
)

var includeLine = regexp.MustCompile(`^-- include ((?:[a-z_]+ )*[a-z_]+)$`)

// Assemble returns the text of the script lua/NAME.lua of files. given are pieces that are not
// files; alter may change the text of a file, and nil leaves it alone. An error says which line
// asks for a piece that does not exist, or which pieces include each other.
func Assemble(files fs.FS, name string, given map[string]string, alter func(file string, src []byte) []byte) (string, error) {
	a := assembly{files: files, given: given, alter: alter, done: map[string]bool{}}
	if err := a.file("lua/" + name + ".lua"); err != nil {
		return "", err
	}
	return a.text.String(), nil
}

type assembly struct {
	files fs.FS
	given map[string]string
	alter func(string, []byte) []byte
	text  strings.Builder
	open  []string        // pieces that are being put in, outermost first
	done  map[string]bool // pieces that were put in
}

func (a *assembly) file(path string) error {
	src, err := fs.ReadFile(a.files, path)
	if err != nil {
		return fmt.Errorf("read script: %w", err)
	}
	src = a.altered(strings.TrimSuffix(path[strings.LastIndexByte(path, '/')+1:], ".lua"), src)
	number := 0
	for line := range strings.Lines(string(src)) {
		number++
		m := includeLine.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if m == nil {
			a.text.WriteString(line)
			continue
		}
		for piece := range strings.FieldsSeq(m[1]) {
			if err := a.include(piece); err != nil {
				return fmt.Errorf("%s:%d: %w", path, number, err)
			}
		}
	}
	return nil
}

func (a *assembly) altered(file string, src []byte) []byte {
	if a.alter == nil {
		return src
	}
	return a.alter(file, src)
}

func (a *assembly) include(piece string) error {
	switch i := slices.Index(a.open, piece); {
	case i >= 0:
		return fmt.Errorf("%s includes itself: %s", piece, strings.Join(append(a.open[i:], piece), " → "))
	case a.done[piece]:
		return nil
	}
	a.done[piece] = true
	if text, ok := a.given[piece]; ok {
		a.text.Write(a.altered(piece, []byte(text)))
		return nil
	}
	a.open = append(a.open, piece)
	defer func() { a.open = a.open[:len(a.open)-1] }()
	return a.file("lua/lib/" + piece + ".lua")
}
