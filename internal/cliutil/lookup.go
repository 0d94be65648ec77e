package cliutil

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

func findFlag(flags []cli.Flag, name string) cli.Flag {
	for _, flag := range flags {
		if slices.Contains(flag.Names(), name) {
			return flag
		}
	}
	return nil
}

func findCommand(commands []*cli.Command, name string) *cli.Command {
	for _, command := range commands {
		if command.HasName(name) {
			return command
		}
	}
	return nil
}

// find returns a flag by name, to know whether it takes a value: a flag of the
// commands so far, the last first, else of those that may yet come.
func (l *line) find(name string) cli.Flag {
	for _, level := range slices.Backward(l.chain) {
		if flag := findFlag(level.flags, name); flag != nil {
			return flag
		}
	}
	return findBelow(l.last().commands, name)
}

func findBelow(commands []*cli.Command, name string) cli.Flag {
	for _, command := range commands {
		if flag := findFlag(command.Flags, name); flag != nil {
			return flag
		}
		if flag := findBelow(command.Subcommands, name); flag != nil {
			return flag
		}
	}
	return nil
}

// takesValue reports whether a flag is followed by a value. An unknown flag (nil)
// is not.
func takesValue(flag cli.Flag) bool {
	documented, ok := flag.(cli.DocGenerationFlag)
	return ok && documented.TakesValue()
}

// fromEnv reports whether one of a flag's environment variables is set.
func fromEnv(flag cli.Flag) bool {
	documented, ok := flag.(cli.DocGenerationFlag)
	return ok && slices.ContainsFunc(documented.GetEnvVars(), func(name string) bool { return os.Getenv(name) != "" })
}

// commandNames lists the commands that help shows.
func commandNames(commands []*cli.Command) []string {
	var names []string
	for _, command := range commands {
		if !command.Hidden {
			names = append(names, command.Name)
		}
	}
	return names
}

// flagNames lists the long flags that help shows, with their dashes, those of the
// last command first.
func (l *line) flagNames() []string {
	var names []string
	for _, level := range slices.Backward(l.chain) {
		for _, flag := range level.flags {
			if visible, ok := flag.(cli.VisibleFlag); ok && !visible.IsVisible() {
				continue
			}
			if name := dashed(flag.Names()[0]); !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// seeHelp ends the message about a wrong command line.
func (l *line) seeHelp() string {
	var names []string
	for _, level := range l.chain {
		names = append(names, level.name)
	}
	return seeHelp(strings.Join(names, " "))
}

func seeHelp(command string) string {
	return fmt.Sprintf("\nSee %s --help", command)
}

// dashed is a flag's name as it is typed.
func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}
