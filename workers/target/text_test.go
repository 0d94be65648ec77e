package target

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestExecOneLine(t *testing.T) {
	for in, want := range map[string]string{
		"":                                  "",
		" a\r\n\tb\n":                       "a b",
		"\xff\xfeab\xff":                    "\uFFFDab\uFFFD",
		"\x1b[1;31mred\x1b[0m":              "red",
		"\x1b]0;title\x07x\x1b]8;;u\x1b\\y": "xy",
		"\x1b]0;no end, and more":           "0;no end, and more",
		"a\x1b":                             "a",
		"\x1b(Bx\x1bcy":                     "xy",
		"a\x00\x08b\u009b2Jc":               "a b 2Jc",
		"a\u2028b\u202ec\u200bd":            "a b c d", // line separator, text direction, nothing at all
		"größe 😀":                           "größe 😀",
	} {
		if got := oneLine([]byte(in)); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestExecCut(t *testing.T) {
	for n, want := range map[int][2]string{
		0: {"…", "…"}, 1: {"…", "…"}, 2: {"é…", "…ö"}, 3: {"é…", "…ö"}, 4: {"éö", "éö"},
	} {
		if head, tail := cutHead("éö", n), cutTail("éö", n); head != want[0] || tail != want[1] {
			t.Errorf("%d: %q and %q, want %q", n, head, tail, want)
		}
	}
}

func TestExecBuffers(t *testing.T) {
	for _, size := range []int{1, 3, 7, 10, 1000} { // of each write
		head, tail := &headBuffer{max: 10}, &tailBuffer{max: 10}
		var all strings.Builder
		for all.Len() < 3000 {
			chunk := strings.Repeat(string(rune('a'+all.Len()%26)), size)
			all.WriteString(chunk)
			head.Write([]byte(chunk))
			if n, err := tail.Write([]byte(chunk)); n != size || err != nil {
				t.Fatal(n, err)
			}
			if len(tail.buf) > 30 || len(head.buf) > 10 {
				t.Fatalf("holds %d and %d bytes", len(head.buf), len(tail.buf))
			}
		}
		s := all.String()
		if string(head.buf) != s[:10] || tail.text() != "…"+s[len(s)-10:] {
			t.Errorf("writes of %d: %q … %q", size, head.buf, tail.text())
		}
	}
	tail := &tailBuffer{max: 10}
	tail.Write([]byte("\xff \xff \xff \xff\n")) // grows when made valid
	if got := tail.text(); !utf8.ValidString(got) || len(got) > 10+len("…") {
		t.Errorf("got %q", got)
	}
}
