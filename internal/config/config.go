// Package config reads the daemon's YAML file into the types that package shaper works with.
//
// It promises:
//   - What is not understood is refused: unknown keys, keys written twice, values of the wrong
//     kind, a second document, YAML anchors, aliases and tags. Environment variables are not
//     expanded.
//   - Every such error names file, line, column, the path of the key, the value, and what would be
//     right; one call reports all of them, in the order of the file.
//   - Secrets stay out of errors: no message quotes a Redis URL, a target's URL, a header or an
//     environment value, and none quotes the file's text around a mistake.
//   - Zero means "not written": a zero that is written is either meant or an error.
//
// Defaults are not filled in here; they belong to whoever uses the value.
package config

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"github.com/jobshaper/jobshaper"
	"github.com/jobshaper/jobshaper/internal/strict"
)

// What a config file may have at most: enough for a hundred thousand tenants, and little enough for
// the parser, which takes some hundred bytes for each value.
const (
	MaxSize  = 8 << 20   // bytes
	maxMarks = 1_000_000 // characters that a value, a key or a line of it may begin or end with
)

// File is a config file as it was written.
type File struct {
	Name        string       // as it was given to Load or Parse
	Redis       string       // a redis URL; empty = not written. May hold a password: do not log it
	Listen      string       // where the HTTP API listens: HOST:PORT, unix:/PATH or none; empty = not written
	DataDir     string       // where the embedded store keeps its files; empty = not written
	Downstreams []Downstream // in the order of their names
}

// Downstream is one downstream of a daemon. A file sets Policy, Tenants, Concurrency and Client
// ("durability"); the program makes the handler from the Target, and the daemon fills in what is
// the same for all downstreams (roles, grace, log, metrics).
type Downstream struct {
	Name string
	jobshaper.Config
	Target Target
}

// Target is what runs a job: a command (Exec, Env, Dir) or an HTTP request (HTTP, Headers).
// The zero Target is none: the program registers Go handlers instead.
type Target struct {
	Exec    []string          // the command and its arguments, run without a shell
	Env     map[string]string // added to the command's clean environment
	Dir     string            // the command's working directory; empty = the daemon's own
	HTTP    string            // where payloads are posted. May hold a password: do not log it
	Headers map[string]string // added to every request. May hold secrets: do not log them
	Line    int               // where the target is written, for errors that show only when its handler is made
}

// IsZero reports whether no target was written.
func (t Target) IsZero() bool { return len(t.Exec) == 0 && t.HTTP == "" }

// Load reads and checks the file at path. Mistakes in it are *Error values, joined.
func Load(path string) (*File, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read config: %w", err)
	}
	defer file.Close()
	b, err := io.ReadAll(io.LimitReader(file, MaxSize+1))
	if err != nil {
		return nil, fmt.Errorf("read config: %w", err)
	}
	return Parse(path, b)
}

// marks is how many nodes a text can have at most, or a little less.
func marks(text []byte) (n int) {
	for _, mark := range "\n,:-?[{" {
		n += bytes.Count(text, []byte{byte(mark)})
	}
	return n
}

// Parse checks the text of a config file; name stands for the file in errors. Mistakes are
// *Error values, joined. It returns either a File or an error.
func Parse(name string, b []byte) (*File, error) {
	d := &decoder{file: name}
	if len(b) > MaxSize {
		d.report(1, 1, "", fmt.Sprintf("the file is too large: want at most %d bytes", MaxSize))
		return nil, d.err()
	}
	text, err := strict.Text(b)
	if err != nil {
		d.unreadable(b, err)
		return nil, d.err()
	}
	if bytes.HasPrefix(text, []byte("\ufeff")) { // the parser would take it off, too
		d.report(1, 1, "", "a second byte order mark: want one at most")
		return nil, d.err()
	}
	if n := marks(text); n > maxMarks {
		d.report(1, 1, "", fmt.Sprintf("the file holds too much: %d values or so, want at most %d", n, maxMarks))
		return nil, d.err()
	}
	root, ok := d.document(text)
	if !ok {
		return nil, d.err()
	}
	f := &File{Name: name}
	d.readFile(root, f)
	if err := d.err(); err != nil {
		return nil, err
	}
	return f, nil
}
