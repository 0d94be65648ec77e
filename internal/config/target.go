package config

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

const (
	wantTarget = `exec: [COMMAND, ARGUMENT, …] or http: URL`
	wantExec   = `a list: the command, then its arguments, such as [ffmpeg, -i, "{payload.input}"]`
	wantArg    = `text (quote what begins with "{")`
)

var (
	envNameRE    = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	headerNameRE = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")
)

func (d *decoder) target(n node) Target {
	var t Target
	t.Line = n.Line
	at := make(map[string]node)
	seen := func(key string, read func(node)) field {
		return field{key, func(n node) { at[key] = n; read(n) }}
	}
	before := len(d.found)
	d.fields(n,
		seen("exec", func(n node) { t.Exec = d.command(n) }),
		seen("env", func(n node) { t.Env = d.pairs(n, envNameRE, "the name of a variable", "\x00") }),
		seen("dir", func(n node) { t.Dir = d.path(n) }),
		seen("http", func(n node) { t.HTTP = d.httpURL(n) }),
		seen("headers", func(n node) { t.Headers = d.pairs(n, headerNameRE, "the name of a header", "\x00\r\n") }),
	)
	if len(d.found) > before {
		return Target{} // more errors would only repeat it
	}
	_, exec := at["exec"]
	_, http := at["http"]
	switch {
	case exec && http:
		d.fail(n, "exec and http: want only one of them")
	case !exec && !http:
		d.fail(n, "want "+wantTarget)
	}
	belongs := func(key, to string, there bool) {
		if n, ok := at[key]; ok && !there {
			d.fail(n, "want it only beside "+to)
		}
	}
	belongs("env", "exec", exec)
	belongs("dir", "exec", exec)
	belongs("headers", "http", http)
	return t
}

// command reads a command and its arguments. Arguments may hold placeholders; the command
// itself may not, or a producer could choose what runs.
func (d *decoder) command(n node) []string {
	var argv []string
	before := len(d.found)
	d.items(n, wantExec, func(n node) {
		arg, ok := d.text(n, wantArg)
		switch {
		case !ok:
		case strings.ContainsRune(arg, 0):
			d.wrong(n, "text without a zero byte")
		case len(argv) == 0 && (arg == "" || strings.ContainsAny(arg, "{}")):
			d.wrong(n, "a command's name or path, without placeholders")
		}
		argv = append(argv, arg)
	})
	if len(argv) == 0 && len(d.found) == before {
		d.fail(n, "empty: want "+wantExec)
	}
	return argv
}

// httpURL reads where payloads are posted: the same place for every job, so without placeholders.
// The value may hold a password and is not quoted.
func (d *decoder) httpURL(n node) string {
	text, _ := scalar(n.Node)
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || strings.ContainsAny(text, "{}") {
		d.fail(n, "want a URL that begins with http:// or https://, without placeholders")
		return ""
	}
	return text
}

// pairs reads names, which must match nameRE, and values, which must not hold any of the
// characters in refused. Values may be secrets and are not quoted.
func (d *decoder) pairs(n node, nameRE *regexp.Regexp, want, refused string) map[string]string {
	m := make(map[string]string)
	d.mapping(n, func(key node, name string, value node) {
		text, ok := scalar(value.Node)
		switch {
		case !nameRE.MatchString(name):
			key.path = n.path
			d.wrong(key, want)
		case !ok:
			d.fail(value, kind(value.Node)+": want text")
		case strings.ContainsAny(text, refused):
			d.fail(value, fmt.Sprintf("want text without any of %q", refused))
		default:
			m[name] = text
		}
	})
	return m
}
