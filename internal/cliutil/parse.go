package cliutil

import (
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"
)

// parse understands a command line, without the program's name. Unknown flags and
// commands are errors that name the one probably meant.
func parse(app *cli.App, words []string) (*line, error) {
	l, tokens := scan(app, words)
	if l.unfinished != "" {
		return nil, Usagef("%s: no value: want %s VALUE%s", l.unfinished, l.unfinished, l.seeHelp())
	}
	if err := l.checkCommand(); err != nil {
		return nil, err
	}
	for _, t := range tokens {
		owner := l.owner(t.name)
		if owner == nil {
			return nil, Usagef("unknown flag %s%s%s", dashed(t.name), DidYouMean(dashed(t.name), l.flagNames()), l.seeHelp())
		}
		owner.given = append(owner.given, t.renamed(findFlag(owner.flags, t.name).Names()[0]))
	}
	return l, nil
}

// scan cuts the words into commands, flags and arguments. These are the rules:
//
//   - a word that begins with a dash is a flag, except "-", negative numbers, and
//     all that follows "--";
//   - a flag that takes a value and has no "=" takes the next word, whatever it is;
//   - another word is a command where the command so far has such a subcommand, and
//     no argument came before it;
//   - else it is an argument.
func scan(app *cli.App, words []string) (*line, []token) {
	l := &line{chain: []level{{name: app.Name, flags: app.Flags, commands: app.Commands, runs: app.Action != nil}}}
	var tokens []token
	for i := 0; i < len(words); i++ {
		word := words[i]
		switch {
		case word == "--":
			l.args = append(l.args, words[i+1:]...)
			return l, tokens
		case isFlag(word):
			name, _, hasValue := strings.Cut(strings.TrimLeft(word, "-"), "=")
			t := token{name: name, text: []string{word}}
			if !hasValue && takesValue(l.find(name)) {
				if i+1 == len(words) {
					l.unfinished = dashed(name)
					return l, tokens
				}
				i++
				t.text = append(t.text, words[i])
			}
			tokens = append(tokens, t)
		default:
			l.word(word)
		}
	}
	return l, tokens
}

// word takes a word that is not a flag.
func (l *line) word(word string) {
	last := l.last()
	if len(l.args) == 0 && len(last.commands) > 0 {
		if command := findCommand(last.commands, word); command != nil {
			l.chain = append(l.chain, level{
				name: command.Name, flags: command.Flags, commands: command.Subcommands, runs: command.Action != nil,
			})
			return
		}
		if word == helpName {
			l.help = true
			return
		}
	}
	l.args = append(l.args, word)
}

// isFlag reports whether a word looks like a flag.
func isFlag(word string) bool {
	if len(word) < 2 || word[0] != '-' {
		return false
	}
	_, err := strconv.ParseFloat(word, 64)
	return err != nil // else a negative number: an argument
}
