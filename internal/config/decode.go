package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/jobshaper/jobshaper/internal/clip"
	"github.com/jobshaper/jobshaper/internal/setting"
	"github.com/jobshaper/jobshaper/internal/strict"
	"github.com/jobshaper/jobshaper/shaper"
)

// decoder walks the tree of nodes rather than decoding into structs: only the tree knows where a
// value is written, whether a zero was written, and that 010 was not meant as 8.
type decoder struct {
	file  string
	found []*Error
}

// node is a value in the tree and the path that leads to it.
type node struct {
	*yaml.Node
	path string
}

// field is a key that a mapping may have, and what reads its value.
type field struct {
	key  string
	read func(node)
}

func (d *decoder) err() error { return joinErrors(d.found) }

func (d *decoder) report(line, column int, path, problem string) {
	d.found = append(d.found, &Error{d.file, line, column, path, problem})
}

// fail reports a problem at n.
func (d *decoder) fail(n node, problem string) {
	d.report(n.Line, n.Column, n.path, problem)
}

// wrong reports that n's value is not what is wanted, and quotes the value.
func (d *decoder) wrong(n node, want string) {
	found := kind(n.Node)
	if value, ok := scalar(n.Node); ok {
		found = strconv.Quote(clip.Value(value))
	}
	d.fail(n, found+": want "+want)
}

// document parses b and returns its only document, a mapping.
func (d *decoder) document(b []byte) (node, bool) {
	var root node
	for parser := yaml.NewDecoder(bytes.NewReader(b)); ; {
		var doc yaml.Node
		err := parser.Decode(&doc)
		switch {
		case errors.Is(err, io.EOF) && root.Node != nil:
			return root, true
		case errors.Is(err, io.EOF):
			d.report(1, 1, "downstreams", "missing: want at least one downstream")
			return node{}, false
		case err != nil:
			d.notYAML(err)
			return node{}, false
		case len(doc.Content) == 0 || kind(doc.Content[0]) == none && doc.Content[0].Value == "": // nothing is written in it
		case root.Node != nil:
			d.fail(node{doc.Content[0], ""}, "a second document: want one")
			return node{}, false
		default:
			root = node{doc.Content[0], ""}
		}
	}
}

var syntaxError = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)

// plainly says in other words what the parser says, where that is obscure, or names an anchor, which
// may be a secret that somebody did not quote.
var plainly = map[string]string{
	"unknown anchor": anchored,
	"found invalid Unicode character escape code": `an escape in this text is no character: want \UXXXXXXXX, or the character itself`,
	"exceeded max depth of":                       "lists and mappings within each other, too many of them",
}

// notYAML reports what the parser says. It knows the line, and not the column.
func (d *decoder) notYAML(err error) {
	line, problem := 1, "this is not YAML"
	if m := syntaxError.FindStringSubmatch(err.Error()); m != nil {
		if n, err := strconv.Atoi(m[1]); err == nil {
			line = n
		}
		problem = m[2]
	}
	for begins, better := range plainly {
		if strings.HasPrefix(problem, begins) {
			problem = better
		}
	}
	d.report(line, 0, "", problem)
}

// unreadable reports that the file is not text, at the place that strict.Text names.
func (d *decoder) unreadable(b []byte, err error) {
	var wrong *strict.Error
	if !errors.As(err, &wrong) {
		wrong = &strict.Error{Problem: err.Error()}
	}
	before := strict.TrimBOM(b[:wrong.Offset])
	line := bytes.LastIndexByte(before, '\n') + 1
	d.report(1+bytes.Count(before, []byte("\n")), 1+utf8.RuneCount(before[line:]), "", wrong.Problem)
}

// mapping calls entry for each key of n in turn and reports keys that are written twice.
// An empty value is a mapping without keys.
func (d *decoder) mapping(n node, entry func(key node, name string, value node)) {
	switch {
	case kind(n.Node) == none:
		return
	case kind(n.Node) != pairs:
		d.wrong(n, pairs)
		return
	}
	first := make(map[string]int, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		name, ok := keyText(k)
		key := node{k, join(n.path, name)}
		if !ok {
			d.fail(node{k, n.path}, kind(k)+" as a key: want a plain name")
			continue
		}
		if before, twice := first[name]; twice {
			d.fail(key, fmt.Sprintf("written twice: want it once, it is on line %d already", before))
			continue
		}
		first[name] = k.Line
		entry(key, name, node{v, key.path})
	}
}

// fields reads a mapping whose keys are known.
func (d *decoder) fields(n node, known ...field) {
	d.mapping(n, func(key node, name string, value node) {
		for _, f := range known {
			if f.key == name {
				f.read(value)
				return
			}
		}
		names := make([]string, len(known))
		for i, f := range known {
			names[i] = f.key
		}
		d.unknown(key, names)
	})
}

func (d *decoder) unknown(key node, known []string) {
	d.fail(key, "unknown key: want "+setting.Or(known))
}

// named reads a mapping whose keys are names of things: of a downstream, of a tenant.
func (d *decoder) named(n node, what string, entry func(name string, value node)) {
	d.mapping(n, func(key node, name string, value node) {
		if err := shaper.ValidName(what, name); err != nil {
			key.path = n.path // with that name the path would be unreadable
			d.fail(key, err.Error())
			return
		}
		entry(name, value)
	})
}

// items calls item for each value of a list. An empty value is a list without items.
func (d *decoder) items(n node, want string, item func(node)) {
	switch kind(n.Node) {
	case list:
		for i, v := range n.Content {
			item(node{v, fmt.Sprintf("%s[%d]", n.path, i)})
		}
	case none:
	default:
		d.wrong(n, want)
	}
}

// text returns a single value as it was written; a number is accepted where text is wanted.
func (d *decoder) text(n node, want string) (string, bool) {
	s, ok := scalar(n.Node)
	if !ok {
		d.wrong(n, want)
	}
	return s, ok
}

// scalar returns the text of a single value that is not empty.
func scalar(n *yaml.Node) (string, bool) {
	if kind(n) != value {
		return "", false
	}
	return n.Value, true
}

// keyText returns the text of a key; unlike as a value, null is a name here.
func keyText(n *yaml.Node) (string, bool) {
	k := kind(n)
	return n.Value, k == value || k == none
}

// What a node may be.
const (
	none     = "no value"
	value    = "a value"
	list     = "a list"
	pairs    = "keys and values"
	anchored = "a YAML anchor or alias, which is not read here"
	tagged   = "a YAML tag, which is not read here"
)

// kind names what a node is.
func kind(n *yaml.Node) string {
	switch {
	case n.Anchor != "" || n.Kind == yaml.AliasNode || n.ShortTag() == "!!merge":
		return anchored
	case n.Style&yaml.TaggedStyle != 0:
		return tagged
	case n.Kind == yaml.SequenceNode:
		return list
	case n.Kind == yaml.MappingNode:
		return pairs
	case n.ShortTag() == "!!null":
		return none
	}
	return value
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
