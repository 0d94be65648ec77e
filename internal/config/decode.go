package config

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/jobshaper/jobshaper/internal/clip"
	"github.com/jobshaper/jobshaper/internal/setting"
	"github.com/jobshaper/jobshaper/internal/strict"
	"github.com/jobshaper/jobshaper/shaper"
)

// decoder walks the syntax tree rather than decoding into structs: only the tree knows where a
// value is written, whether a zero was written, and that 010 was not meant as 8.
type decoder struct {
	file  string
	found []*Error
}

// node is a value in the tree and the path that leads to it.
type node struct {
	ast.Node
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
	line, column := position(n.Node)
	d.report(line, column, n.path, problem)
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
	// Keys written twice are allowed here and found by mapping, which knows their path.
	tree, err := parser.ParseBytes(b, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		line, column, problem := 1, 1, "this is not YAML"
		var syntax yaml.Error
		if errors.As(err, &syntax) {
			problem = syntax.GetMessage() // Error() would quote the lines around it, and secrets in them
			if t := syntax.GetToken(); t != nil && t.Position != nil {
				line, column = t.Position.Line, t.Position.Column
			}
		}
		d.report(line, column, "", problem)
		return node{}, false
	}
	var root node
	for _, doc := range tree.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.DirectiveType {
			continue
		}
		if root.Node != nil {
			d.fail(node{doc.Body, ""}, "a second document: want one")
			return node{}, false
		}
		root = node{doc.Body, ""}
	}
	if root.Node == nil {
		d.report(1, 1, "downstreams", "missing: want at least one downstream")
		return node{}, false
	}
	ast.Walk(d, root.Node)
	return root, len(d.found) == 0
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

// Visit reports texts in which an escape is no character, such as half a surrogate pair: the parser
// reads it as U+FFFD. Its tree does not tell that from an escaped U+FFFD, which nobody means to
// write; the character itself may be in a text.
func (d *decoder) Visit(n ast.Node) ast.Visitor {
	s, ok := n.(*ast.StringNode)
	if ok && s.Token.Type == token.DoubleQuoteType && strings.Count(s.Value, "\ufffd") > strings.Count(s.Token.Origin, "\ufffd") {
		d.fail(node{n, ""}, "an escape in this text is no character: want both halves of a surrogate pair, or the character itself")
	}
	return d
}

// mapping calls entry for each key of n in turn and reports keys that are written twice.
// An empty value is a mapping without keys.
func (d *decoder) mapping(n node, entry func(key node, name string, value node)) {
	var values []*ast.MappingValueNode
	switch m := n.Node.(type) {
	case *ast.MappingNode:
		values = m.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{m}
	case *ast.NullNode:
		return
	default:
		d.wrong(n, "keys and values")
		return
	}
	first := make(map[string]int, len(values))
	for _, v := range values {
		name, ok := keyText(v.Key)
		key := node{v.Key, join(n.path, name)}
		if !ok {
			d.fail(node{v.Key, n.path}, kind(v.Key)+" as a key: want a plain name")
			continue
		}
		line, _ := position(v.Key)
		if before, twice := first[name]; twice {
			d.fail(key, fmt.Sprintf("written twice: want it once, it is on line %d already", before))
			continue
		}
		first[name] = line
		entry(key, name, node{v.Value, key.path})
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
		d.fail(key, "unknown key: want "+setting.Or(names))
	})
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
	switch s := n.Node.(type) {
	case *ast.SequenceNode:
		for i, v := range s.Values {
			item(node{v, fmt.Sprintf("%s[%d]", n.path, i)})
		}
	case *ast.NullNode:
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
func scalar(n ast.Node) (string, bool) {
	switch v := n.(type) {
	case *ast.StringNode:
		return v.Value, true
	case *ast.LiteralNode:
		return v.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, true
	}
	return "", false
}

// keyText returns the text of a key; unlike as a value, null is a name here.
func keyText(n ast.Node) (string, bool) {
	if n.Type() == ast.NullType {
		return n.GetToken().Value, true
	}
	return scalar(n)
}

// kind names what was found where a single value was wanted.
func kind(n ast.Node) string {
	switch n.Type() {
	case ast.NullType:
		return "no value"
	case ast.MappingType, ast.MappingValueType:
		return "keys and values"
	case ast.SequenceType:
		return "a list"
	case ast.AnchorType, ast.AliasType, ast.MergeKeyType:
		return "a YAML anchor or alias, which is not read here"
	case ast.TagType:
		return "a YAML tag, which is not read here"
	}
	return strings.ToLower(n.Type().String())
}

// position returns where n begins. A block mapping begins at its first key, although its token is
// the colon.
func position(n ast.Node) (line, column int) {
	switch m := n.(type) {
	case *ast.MappingNode:
		if !m.IsFlowStyle && len(m.Values) > 0 {
			return position(m.Values[0])
		}
	case *ast.MappingValueNode:
		return position(m.Key)
	}
	if t := n.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line, t.Position.Column
	}
	return 1, 1
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
