package model

import (
	"cmp"
	"slices"
)

// Book is a list of names, each at an instant: ordered by it, and by name at the same instant.
type Book struct {
	lines []Line
	at    map[string]int64
}

// Line is one name in a Book.
type Line struct {
	At   int64
	Name string
}

func newBook() *Book { return &Book{at: map[string]int64{}} }

func (b *Book) find(l Line) (int, bool) {
	return slices.BinarySearchFunc(b.lines, l, func(a, b Line) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Name, b.Name))
	})
}

// put enters a name, or moves it.
func (b *Book) put(name string, at int64) {
	b.drop(name)
	i, _ := b.find(Line{at, name})
	b.lines = slices.Insert(b.lines, i, Line{at, name})
	b.at[name] = at
}

// drop strikes a name out, and reports whether it was there.
func (b *Book) drop(name string) bool {
	at, ok := b.at[name]
	if ok {
		i, _ := b.find(Line{at, name})
		b.lines = slices.Delete(b.lines, i, i+1)
		delete(b.at, name)
	}
	return ok
}

// Lines returns all of the book, in order. The caller must not change it.
func (b *Book) Lines() []Line { return b.lines }

// Len is how many names there are.
func (b *Book) Len() int { return len(b.lines) }

// At is the instant of a name.
func (b *Book) At(name string) (int64, bool) { at, ok := b.at[name]; return at, ok }

// rank is a name's place in the order, from 0; it must be there.
func (b *Book) rank(name string) int { i, _ := b.find(Line{b.at[name], name}); return i }

// first returns the first line; the book must not be empty.
func (b *Book) first() Line { return b.lines[0] }

// last returns the last one.
func (b *Book) last() Line { return b.lines[len(b.lines)-1] }

// until returns a copy of the lines up to an instant.
func (b *Book) until(at int64) []Line {
	i, _ := b.find(Line{at + 1, ""})
	return slices.Clone(b.lines[:i])
}
