package config

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/internal/test/testenv"
)

// most is what reading any file may cost: memory that is allocated in all, and time on a machine that
// is busy with other things.
const (
	mostMemory = 400 << 20
	mostTime   = 30 * time.Second
)

// big is enough to tell what grows with the square of a file.
const big = 1 << 19

// many is n, or less with the race detector, which makes a parser twenty times as slow.
func many(n int) int {
	if testenv.Race {
		return n / 10
	}
	return n
}

// bombs are files that cost a parser much more than they seem to.
var bombs = map[string]string{
	"lists in lists":            strings.Repeat("- ", big/2),
	"fewer lists in lists":      strings.Repeat("- ", 8000),
	"flow lists in flow lists":  strings.Repeat("[", big),
	"closed flow lists":         strings.Repeat("[", 9000) + strings.Repeat("]", 9000),
	"mappings in mappings":      strings.Repeat("{", big),
	"mappings of mappings":      strings.Repeat("{a: ", big/4),
	"deeper and deeper":         deeper(4000),
	"complex keys":              strings.Repeat("? ", big/2),
	"keys with CRLF":            strings.Repeat("a:\r\n", big/4),
	"one key again and again":   "downstreams: {" + strings.Repeat("a: 1,", many(60_000)) + "}",
	"empty lines in a text":     "a: |\n" + strings.Repeat("\n", many(300_000)),
	"comments":                  "a:\n" + strings.Repeat(" #x\n", many(300_000)) + " b: 1\n",
	"one long word":             strings.Repeat("a", big),
	"quotes":                    strings.Repeat(`"`, big),
	"escapes":                   `a: "` + strings.Repeat(`\x41`, big/4-8) + `"`,
	"anchors":                   strings.Repeat("&a ", big/3),
	"anchors in a list":         "[" + strings.Repeat("&a a,", many(300_000)) + "]",
	"aliases of aliases":        laughs(),
	"tags":                      strings.Repeat("! ", big/2),
	"directives":                strings.Repeat("%TAG ! tag:a:\n", many(100_000)),
	"documents":                 strings.Repeat("---\n", many(200_000)),
	"commas":                    "[" + strings.Repeat(",", many(300_000)) + "]",
	"values":                    "[" + strings.Repeat("a,", many(990_000)) + "]",
	"folded text":               "a: " + strings.Repeat("b\n ", many(300_000)),
	"spaces":                    strings.Repeat(" ", big),
	"tabs":                      "a:" + strings.Repeat("\t", big-2),
	"a thousand wrong tenants":  "downstreams:\n  d:\n    tenants:\n" + strings.Repeat("      '!': {}\n", 1000),
	"unknown keys of a tenant":  "downstreams: {d: {tenants: {a: {" + strings.Repeat("x: 1, ", many(50_000)) + "}}}}",
	"different unknown keys":    "downstreams: {d: {tenants: {a: {" + numbered("x%d: 1, ", many(150_000)) + "}}}}",
	"admission rules":           "downstreams: {d: {admit: [" + strings.Repeat("{token_bucket: 1/s}, ", many(50_000)) + "]}}",
	"arguments and their words": "downstreams: {d: {target: {exec: [" + strings.Repeat("'{payload.a}', ", many(50_000)) + "]}}}",
}

func deeper(n int) string {
	var b strings.Builder
	for i := 0; b.Len() < big-n-3 && i < n; i++ {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}

func laughs() string {
	var b strings.Builder
	b.WriteString("a0: &a0 [x, x]\n")
	for i := range 60 {
		fmt.Fprintf(&b, "a%d: &a%d [*a%d, *a%d]\n", i+1, i+1, i, i)
	}
	return b.String()
}

func numbered(format string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

// cost is what Parse takes.
func cost(text string) (allocated uint64, took time.Duration, f *File, err error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begun := time.Now()
	f, err = Parse("f", []byte(text))
	took = time.Since(begun)
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc, took, f, err
}

// No file that fits in the limits is a bomb.
func TestNoFileIsABomb(t *testing.T) {
	testenv.Long(t, "reads dozens of large files")
	for name, text := range bombs {
		if len(text) > MaxSize {
			t.Errorf("%s: %d bytes, the limit would have refused it", name, len(text))
		}
		allocated, took, _, err := cost(text)
		if err == nil {
			t.Errorf("%s: no error", name)
		} else if len(err.Error()) > 20_000 {
			t.Errorf("%s: an error of %d bytes", name, len(err.Error()))
		}
		if allocated > mostMemory || took > mostTime {
			t.Errorf("%s: %d bytes took %d MB and %v, want at most %d MB and %v", name, len(text), allocated>>20, took, mostMemory>>20, mostTime)
		}
	}
}

// A hundred thousand tenants are a file like any other.
func TestManyTenantsAreRead(t *testing.T) {
	testenv.Long(t, "reads a file of 6 MB")
	tenants := many(100_000)
	text := "downstreams:\n  d:\n    tenants:\n" + numbered("      tenant-%d: { rate: 10/s, depth: 100, weight: 2 }\n", tenants)
	allocated, took, f, err := cost(text)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(f.Downstreams[0].Tenants); n != tenants {
		t.Errorf("%d tenants, want %d", n, tenants)
	}
	t.Logf("%d tenants in %d bytes: %d MB in %v", tenants, len(text), allocated>>20, took)
	if allocated > mostMemory || took > mostTime {
		t.Errorf("%d MB and %v, want at most %d MB and %v", allocated>>20, took, mostMemory>>20, mostTime)
	}
}
