package cliutil

import (
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"
)

// EnvPrefix begins the environment variable of a flag that has one: --log-format
// is SHAPER_LOG_FORMAT.
const EnvPrefix = "SHAPER_"

const (
	helpName       = "help"
	versionName    = "version"
	completionName = "completion"
)

// prepare gives an app and all its commands the behaviour of this package.
func prepare(app *cli.App) {
	// The library's own help and version flags are variables shared by all apps of
	// the process, and its help command takes an argument "help" or "h" for itself.
	// We bring our own.
	app.HideHelp, app.HideHelpCommand, app.HideVersion = true, true, true
	app.ExitErrHandler = func(*cli.Context, error) {} // else it calls os.Exit
	app.OnUsageError = onUsageError
	if len(app.Commands) > 0 {
		app.Commands = append(app.Commands, completionCommand(app.Name))
	} else {
		app.Flags = append(app.Flags, completionFlag())
	}
	app.Flags = append(app.Flags, helpFlag())
	if app.Version != "" {
		app.Flags = append(app.Flags, &cli.BoolFlag{Name: versionName, Usage: "print the version", DisableDefaultText: true})
	}
	for _, command := range app.Commands {
		prepareCommand(command)
	}
}

func prepareCommand(command *cli.Command) {
	command.HideHelp, command.HideHelpCommand = true, true
	command.OnUsageError = onUsageError
	command.Flags = append(command.Flags[:len(command.Flags):len(command.Flags)], helpFlag()) // the slice may be shared
	for _, sub := range command.Subcommands {
		prepareCommand(sub)
	}
}

func helpFlag() cli.Flag {
	return &cli.BoolFlag{Name: helpName, Aliases: []string{"h"}, Usage: "show help", DisableDefaultText: true}
}

// FromEnv gives flags their environment variables and returns them. It is for the
// connection, the output and what a daemon is started with. A flag that says what to
// do has none: a variable that is set for one program would change what another does.
func FromEnv(flags ...cli.Flag) []cli.Flag {
	for _, flag := range flags {
		// All flag types have the field, none an interface to set it.
		reflect.Indirect(reflect.ValueOf(flag)).FieldByName("EnvVars").Set(reflect.ValueOf([]string{Env(flag.Names()[0])}))
	}
	return flags
}

// Env is the environment variable of the flag called name.
func Env(name string) string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// invalidValue is how package flag reports a value that does not parse.
var invalidValue = regexp.MustCompile(`^invalid value "(.*)" for flag -([^:]+): (.*)$`)

// onUsageError turns the library's error about a flag's value into ours. (parse
// has found unknown flags and missing values before.)
func onUsageError(c *cli.Context, err error, _ bool) error {
	text := err.Error()
	if m := invalidValue.FindStringSubmatch(text); m != nil {
		value, name, want := m[1], m[2], m[3]
		if flag := findFlag(c.Command.Flags, name); flag != nil && wantOf(flag) != "" {
			want = "want " + wantOf(flag)
		}
		text = dashed(name) + " " + strconv.Quote(value) + ": " + want
	}
	return Usagef("%s%s", text, seeHelp(c.Command.HelpName))
}

// wantOf says what a flag's value must look like.
func wantOf(flag cli.Flag) string {
	switch flag.(type) {
	case *cli.DurationFlag:
		return "a duration, such as 500ms, 10s or 1h30m"
	case *cli.IntFlag, *cli.Int64Flag:
		return "a whole number"
	case *cli.UintFlag, *cli.Uint64Flag:
		return "a whole number, not negative"
	case *cli.Float64Flag:
		return "a number"
	case *cli.BoolFlag:
		return "true or false, or no value"
	}
	return ""
}
