package cliutil

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// line is a command line, understood: which command it names, its flags and its
// arguments, wherever they stood.
type line struct {
	chain []level  // the program, the command, its subcommand, …
	args  []string // what is neither a flag nor a command
	help  bool     // the word "help" stood where a command may stand

	// unfinished is the flag that ends the line without its value.
	unfinished string
}

// level is one step of the way to the command.
type level struct {
	name     string
	flags    []cli.Flag
	commands []*cli.Command
	runs     bool    // it does something without a subcommand
	given    []token // its flags on the line
}

// token is a flag on the line.
type token struct {
	name string   // without dashes
	text []string // one word, or two where the value is a word of its own
}

// value is the flag's value, or "" where it has none.
func (t token) value() string {
	if len(t.text) > 1 {
		return t.text[1]
	}
	_, value, _ := strings.Cut(t.text[0], "=")
	return value
}

// renamed is the token under its flag's first name. The library refuses a flag
// that is given by two of its names; like everybody else we let the last one win.
func (t token) renamed(name string) token {
	_, value, joined := strings.Cut(t.text[0], "=")
	word := dashed(name)
	if joined {
		word += "=" + value
	}
	return token{name: name, text: append([]string{word}, t.text[1:]...)}
}

func (l *line) last() *level { return &l.chain[len(l.chain)-1] }

// owner returns the last level that has the flag.
func (l *line) owner(name string) *level {
	for i := range slices.Backward(l.chain) {
		if findFlag(l.chain[i].flags, name) != nil {
			return &l.chain[i]
		}
	}
	return nil
}

// checkCommand refuses a word where only a command may stand.
func (l *line) checkCommand() error {
	last := l.last()
	if len(last.commands) == 0 || last.runs || len(l.args) == 0 {
		return nil
	}
	return Usagef("unknown command %q%s%s", l.args[0], DidYouMean(l.args[0], commandNames(last.commands)), l.seeHelp())
}

// check refuses what the library would answer with help on stdout: a missing
// command or a missing flag.
func (l *line) check() error {
	if l.wantsHelp() {
		return nil
	}
	last := l.last()
	if len(last.commands) > 0 && !last.runs {
		return Usagef("no command: want one of %s%s", strings.Join(commandNames(last.commands), ", "), l.seeHelp())
	}
	for _, level := range l.chain {
		for _, flag := range level.flags {
			// A flag whose variable is set counts as given: the library reads it.
			if required, ok := flag.(cli.RequiredFlag); ok && required.IsRequired() && !l.hasFlag(flag) && !fromEnv(flag) {
				return Usagef("missing flag %s%s", dashed(flag.Names()[0]), l.seeHelp())
			}
		}
	}
	return nil
}

// argv is the line as the library takes it: each level's flags before the next
// command, all flags before the arguments.
func (l *line) argv() []string {
	var argv []string
	for i, level := range l.chain {
		if i > 0 {
			argv = append(argv, level.name)
		}
		for _, t := range level.given {
			argv = append(argv, t.text...)
		}
	}
	if l.wantsHelp() {
		// Without the arguments: the library would take the first for a topic of help.
		return append(argv, "--"+helpName)
	}
	if slices.ContainsFunc(l.args, func(arg string) bool { return strings.HasPrefix(arg, "-") && arg != "-" }) {
		argv = append(argv, "--")
	}
	return append(argv, l.args...)
}

func (l *line) wantsHelp() bool { return l.help || l.has(helpName) }

// has reports whether a flag of this name is on the line.
func (l *line) has(name string) bool {
	flag := l.find(name)
	return flag != nil && l.hasFlag(flag)
}

func (l *line) hasFlag(flag cli.Flag) bool {
	return slices.ContainsFunc(l.chain, func(level level) bool {
		return slices.ContainsFunc(level.given, func(t token) bool { return slices.Contains(flag.Names(), t.name) })
	})
}

// value returns the value of a flag of the program itself.
func (l *line) value(name string) (string, bool) {
	for _, t := range l.chain[0].given {
		if t.name == name {
			return t.value(), true
		}
	}
	return "", false
}
