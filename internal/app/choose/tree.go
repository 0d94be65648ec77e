// Package choose helps to choose an algorithm: a tree of yes-or-no questions, and at its leaves
// what to write and what to try. docs/choosing.md shows the same tree, which a test compares.
package choose

import (
	"fmt"
	"strings"
)

// Question is a question of the tree.
type Question struct {
	Flag string // the flag that answers it on a command line
	Text string
	Why  string // what depends on it

	yes, no node
}

// node is a *Question or a *Choice.
type node interface{ isNode() }

func (*Question) isNode() {}
func (*Choice) isNode()   {}

// Choice is a leaf: an algorithm, and how to have it.
type Choice struct {
	Algorithm string // as `shaper trace` calls it
	Because   string
	Worst     string   // the most that can pass in any window
	Config    []string // lines of a downstream in a config file
	Run       string   // flags of `shaper run` that do the same
	Trace     string   // a command that shows it decide
}

var (
	strict = &Question{Flag: "strict-output", Text: "Strict output: must work leave evenly spaced, and wait for its turn rather than be refused?",
		Why: "a queue makes calls wait; all others admit or refuse", yes: queue, no: daily}
	daily = &Question{Flag: "daily-quota", Text: "A quota: so much for each day or hour of the clock, and then a new count?",
		Why: "people understand it, and it is the cheapest", yes: fixed, no: bursts}
	bursts = &Question{Flag: "bursts", Text: "Bursts: may a client do much at once, if it keeps to the rate in the long run?",
		Why: "without bursts, calls are about an interval apart", yes: unused, no: meter}
	unused = &Question{Flag: "keep-unused", Text: "Unused quota: may a client that was quiet save up for a burst?",
		Why: "a bucket saves up to its size; a window forgets", yes: token, no: perfect}
	perfect = &Question{Flag: "perfect-accuracy", Text: "Perfect accuracy: never one call too many in any window, whatever it costs in memory?",
		Why: "the log remembers each call, the counter estimates", yes: log, no: counter}
)

// Tree is the first question.
func Tree() *Question { return strict }

// Questions lists all of them, in the order in which they may be asked.
func Questions() []*Question { return []*Question{strict, daily, bursts, unused, perfect} }

// Mermaid draws the tree as Markdown's diagrams do.
func Mermaid() string {
	var b strings.Builder
	b.WriteString("flowchart TD\n")
	for _, q := range Questions() {
		short, _, _ := strings.Cut(q.Text, ":")
		fmt.Fprintf(&b, "    %s{%s?}\n", q.Flag, short)
		for _, way := range []struct {
			answer string
			to     node
		}{{"yes", q.yes}, {"no", q.no}} {
			switch to := way.to.(type) {
			case *Question:
				fmt.Fprintf(&b, "    %s -- %s --> %s\n", q.Flag, way.answer, to.Flag)
			case *Choice:
				fmt.Fprintf(&b, "    %s -- %s --> %s([%s])\n", q.Flag, way.answer, to.Algorithm, to.Algorithm)
			}
		}
	}
	return b.String()
}
