package cliutil

import (
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"
)

// Examples adds examples to the help of a command and returns it. Each line is
// printed as it is; a line that begins with "#" explains the next one.
func Examples(command *cli.Command, lines ...string) *cli.Command {
	command.CustomHelpTemplate = cli.SubcommandHelpTemplate + examples(lines)
	return command
}

// AppExamples adds examples to the help of the program and returns it.
func AppExamples(app *cli.App, lines ...string) *cli.App {
	app.CustomAppHelpTemplate = cli.AppHelpTemplate + examples(lines)
	return app
}

// examples is a piece of a help template.
func examples(lines []string) string {
	text := "\nEXAMPLES:\n"
	for _, line := range lines {
		text += "   " + line + "\n"
	}
	// As a string constant of the template, so that braces of an example stay text.
	return "{{" + strconv.Quote(strings.TrimSuffix(text, "\n")) + "}}\n"
}
