package cliutil

import (
	"strings"

	"github.com/urfave/cli/v2"
)

// Args returns the arguments of a command after checking their number against
// names, as its usage has them: "TENANT" must be there, "[PAYLOAD]" may be, and
// "AT..." (last) stands for one or more. The error is a usage error that names what
// is missing or superfluous.
//
// The slice has an element for each name; an optional one left out is "".
func Args(c *cli.Context, names ...string) ([]string, error) {
	args := c.Args().Slice()
	see := seeHelp(c.Command.HelpName)
	for i, name := range names {
		if i >= len(args) && !strings.HasPrefix(name, "[") {
			return nil, Usagef("missing argument %s%s", strings.TrimSuffix(name, "..."), see)
		}
	}
	many := len(names) > 0 && strings.HasSuffix(strings.Trim(names[len(names)-1], "[]"), "...")
	if len(args) > len(names) && !many {
		return nil, Usagef("unexpected argument %q%s", args[len(names)], see)
	}
	for len(args) < len(names) {
		args = append(args, "")
	}
	return args, nil
}
