package cliutil

import (
	"embed"
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"
)

// completeWord is the first argument with which the shell scripts ask for
// completions; the words of the command line so far follow, the one under the
// cursor (perhaps empty) last.
const completeWord = "__complete"

//go:embed completion
var scripts embed.FS

var shells = []string{"bash", "zsh", "fish"}

// completionCommand prints a script for a shell.
func completionCommand(program string) *cli.Command {
	return Examples(&cli.Command{
		Name:      completionName,
		Usage:     "print the completion script of a shell",
		ArgsUsage: strings.Join(shells, "|"),
		Action: func(c *cli.Context) error {
			args, err := Args(c, "SHELL")
			if err != nil {
				return err
			}
			return printScript(c.App.Writer, program, args[0])
		},
	},
		"source <("+program+" completion bash)",
		program+" completion fish > ~/.config/fish/completions/"+program+".fish")
}

// completionFlag stands in for the command in a program that has arguments where
// others have commands.
func completionFlag() cli.Flag {
	return &cli.StringFlag{
		Name:  completionName,
		Usage: "print the completion `SCRIPT` of a shell: " + strings.Join(shells, ", "),
	}
}

func printScript(w io.Writer, program, shell string) error {
	script, err := scripts.ReadFile("completion/" + shell)
	if err != nil {
		return Usagef("shell %q: want %s", shell, strings.Join(shells, ", "))
	}
	_, err = io.WriteString(w, strings.ReplaceAll(string(script), "PROG", program))
	return err
}

// complete prints what the last word may become, one a line: flags after a dash,
// else commands. It prints nothing where a file may be meant, so that the shell falls
// back to files.
func complete(app *cli.App, words []string, stdout io.Writer) error {
	if len(words) == 0 {
		words = []string{""}
	}
	partial := words[len(words)-1]
	l, _ := scan(app, words[:len(words)-1])
	var found []string
	switch {
	case l.unfinished != "": // the value of a flag
	case strings.HasPrefix(partial, "-"):
		found = l.flagNames()
	case len(l.args) == 0:
		found = commandNames(l.last().commands)
	}
	for _, name := range found {
		if strings.HasPrefix(name, partial) {
			if _, err := fmt.Fprintln(stdout, name); err != nil {
				return err
			}
		}
	}
	return nil
}
