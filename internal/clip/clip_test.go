package clip

import (
	"strings"
	"testing"
)

func TestValue(t *testing.T) {
	x80 := strings.Repeat("x", 80)
	for in, want := range map[string]string{
		"":                             "",
		"ä":                            "ä",
		x80:                            x80,
		x80 + "y":                      x80 + "… (81 bytes)",
		x80[:79] + "ä":                 x80[:79] + "… (81 bytes)", // no half of a character
		x80[:78] + "äy":                x80[:78] + "ä… (81 bytes)",
		"\xff" + x80:                   x80[:79] + "… (81 bytes)",
		strings.Repeat("\xbf", 81):     "… (81 bytes)",
		strings.Repeat("😀", 1_000_000): strings.Repeat("😀", 20) + "… (4000000 bytes)",
	} {
		if got := Value(in); got != want {
			t.Errorf("%.100q: %q, want %q", in, got, want)
		}
	}
}

func TestBytes(t *testing.T) {
	for n, want := range []string{"…", "…", "é…", "é…", "éö"} {
		if got := Bytes("éö", n); got != want {
			t.Errorf("%d bytes: %q, want %q", n, got, want)
		}
	}
}

func TestCell(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "äöü": "äöü", "äöüß": "äö…", "ab\ncd": "ab", "abcd\nef": "ab…",
	} {
		if got := Cell(in, 3); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
