package main

import (
	"slices"
	"testing"
)

func TestSplitWords(t *testing.T) {
	for _, row := range []struct {
		line string
		want []string // nil = an error
	}{
		{`ffmpeg -i {payload.input} out.mp4`, []string{"ffmpeg", "-i", "{payload.input}", "out.mp4"}},
		{"  a \t b\nc  ", []string{"a", "b", "c"}},
		{`a 'b c' "d e"`, []string{"a", "b c", "d e"}},
		{`a ''`, []string{"a", ""}},
		{`a"b"'c'd`, []string{"abcd"}}, // quotes join
		{`a 'it'\''s'`, []string{"a", "it's"}},
		{`a b\ c \"`, []string{"a", "b c", `"`}},
		{`a "\$x \" \n"`, []string{"a", `$x " \n`}}, // between double quotes most backslashes are text
		{`a '\'`, []string{"a", `\`}},
		{"a b\\\nc", []string{"a", "bc"}},
		{`a $HOME *.go | b # c`, []string{"a", "$HOME", "*.go", "|", "b", "#", "c"}}, // nothing else is a shell's
		{`a 'b`, nil},
		{`a "b`, nil},
		{`a \`, nil},
		{``, nil},
		{`  `, nil},
	} {
		got, err := splitWords(row.line)
		if (err != nil) != (row.want == nil) || !slices.Equal(got, row.want) {
			t.Errorf("%q: %q, %v; want %q", row.line, got, err, row.want)
		}
	}
}

func TestTable(t *testing.T) {
	var out stringWriter
	if err := table(&out, []string{"NAME", ">N", "NOTE"}, [][]string{{"a", "10", "ü"}, {"bcdef", "5", ""}}); err != nil {
		t.Fatal(err)
	}
	want := "NAME    N  NOTE\na      10  ü\nbcdef   5\n"
	if string(out) != want {
		t.Errorf("got\n%s\nwant\n%s", out, want)
	}
}

type stringWriter string

func (s *stringWriter) Write(b []byte) (int, error) { *s += stringWriter(b); return len(b), nil }
