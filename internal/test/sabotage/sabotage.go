// Package sabotage breaks scripts on purpose, to show that tests would notice. Nothing but builds
// with the tag sabotage imports it.
package sabotage

import (
	_ "embed"
	"fmt"
	"os"
	"strings"
)

// Variable names the break to make; empty means none.
const Variable = "SHAPER_SABOTAGE"

//go:embed breaks.txt
var breaks string

// Break is a text of a script, and what takes its place once it is broken.
type Break struct{ Name, File, Text, Broken string }

// Breaks returns all breaks, as breaks.txt describes them.
func Breaks() []Break {
	var all []Break
	for line := range strings.Lines(breaks) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		head, text, found := strings.Cut(line, ": ")
		name, file, named := strings.Cut(head, " ")
		text, broken, replaced := strings.Cut(text+" ", " => ")
		if !found || !named || !replaced {
			panic(fmt.Sprintf("breaks.txt: %q: want NAME FILE: TEXT => TEXT", line))
		}
		all = append(all, Break{name, file, text, strings.TrimSpace(broken)})
	}
	return all
}

// Apply makes the break in the source of a script's file. It panics if the text does not occur
// there exactly once.
func (b Break) Apply(src []byte) []byte {
	if n := strings.Count(string(src), b.Text); n != 1 {
		panic(fmt.Sprintf("sabotage %s: its text stands %d times in %s.lua, want once", b.Name, n, b.File))
	}
	return []byte(strings.Replace(string(src), b.Text, b.Broken, 1))
}

// Script returns the source of FILE.lua with the break of the environment, if it is in that file.
// It panics at a break that does not exist, since then the tests would show nothing.
func Script(file string, src []byte) []byte {
	name, known := os.Getenv(Variable), false
	for _, b := range Breaks() {
		if b.Name != name {
			continue
		}
		if known = true; b.File == file {
			src = b.Apply(src)
		}
	}
	if name != "" && !known {
		panic(fmt.Sprintf("%s=%s: want a name of breaks.txt", Variable, name))
	}
	return src
}
