package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
)

// hostile is text that a terminal would obey: an escape sequence, one of C1, and a change of the
// direction of writing.
const hostile = "\x1b[2J\u009b31m\u202eevil"

// Whatever others wrote, a terminal prints it, and obeys none of it.
func TestNothingHostileReachesTheTerminal(t *testing.T) {
	lines, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lines.Close()
	go func() { // a Redis that answers everything with an error
		for {
			conn, err := lines.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for buf := make([]byte, 4096); ; {
					n, err := conn.Read(buf)
					if err != nil {
						return
					}
					for range bytes.Count(buf[:n], []byte("\r\n*")) + 1 {
						fmt.Fprintf(conn, "-ERR %s\r\n", hostile)
					}
				}
			}()
		}
	}()
	url := "redis://" + lines.Addr().String()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	c := &console{t: t}
	for _, words := range [][]string{
		{"config", "check", write("key.yaml", "downstreams: {d: {\"\\e[2J\\u009b31m\\u202eevil\": 1}}\n")},
		{"config", "check", write("value.yaml", "downstreams: {d: {on_full: \"\\e[2J\\u009b31m\\u202eevil\", defaults: {rate: \"\\u202eevil\"}}}\n")},
		{"config", "check", write(strings.ReplaceAll(hostile, "/", "")+".yaml", "downstreams: 1\n")},
		{"run", "--config", write("target.yaml", "downstreams: {d: {target: {exec: [\"\\u202eevil\"]}}}\n")},
		{"stats", "--redis", url}, {"doctor", "--redis", url}, {"tenants", "ls", "--redis", url}, {"tenants", "pause", "acme", "--redis", url}, {"dead", "ls", "--redis", url},
		{"run", "--redis", url, "--exec", "true"}, {"verify", "--redis", url}, {"jobs", "show", "--redis", url, "x"},
		{hostile}, {"stats", "--" + hostile}, {"trace", hostile}, {"tenants", "set", hostile, "--rate", hostile},
	} {
		_, stdout, stderr := c.run(words...)
		for _, r := range stdout + stderr {
			if r != '\n' && r != '\t' && !unicode.IsPrint(r) {
				t.Errorf("%q printed %U in %q", words, r, stdout+stderr)
				break
			}
		}
	}
}
