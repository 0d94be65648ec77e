package lua

import (
	"strings"
	"testing"
	"testing/fstest"
)

func TestAssemble(t *testing.T) {
	files := fstest.MapFS{}
	for path, text := range map[string]string{
		"lua/early.lua":    "-- head\n-- include a\nfast()\n-- include b c\nslow()\n",
		"lua/alone.lua":    "alone()\n--  include a\n-- include A\n-- includes a\nx = 1 -- include a\n",
		"lua/missing.lua":  "\n-- include a nowhere\n",
		"lua/cycle.lua":    "-- include x\n",
		"lua/itself.lua":   "-- include self\n",
		"lua/lib/a.lua":    "a()\n",
		"lua/lib/b.lua":    "-- include a given\nb()\n",
		"lua/lib/c.lua":    "-- include b\nc()\n",
		"lua/lib/x.lua":    "-- include y\n",
		"lua/lib/y.lua":    "-- include a z\n",
		"lua/lib/z.lua":    "-- include x\n",
		"lua/lib/self.lua": "-- include self\n",
	} {
		files[path] = &fstest.MapFile{Data: []byte(text)}
	}
	given := map[string]string{"given": "given()\n"}
	for _, row := range []struct{ name, want, err string }{
		{"early", "-- head\na()\nfast()\ngiven()\nb()\nc()\nslow()\n", ""},
		{"alone", string(files["lua/alone.lua"].Data), ""}, // none of these is an include line
		{"missing", "", "lua/missing.lua:2: read script: open lua/lib/nowhere.lua"},
		{"cycle", "", "lua/cycle.lua:1: lua/lib/x.lua:1: lua/lib/y.lua:1: lua/lib/z.lua:1: x includes itself: x → y → z → x"},
		{"itself", "", "self includes itself: self → self"},
		{"none", "", "lua/none.lua"},
	} {
		got, err := Assemble(files, row.name, given, nil)
		if got != row.want || (err == nil) != (row.err == "") || err != nil && !strings.Contains(err.Error(), row.err) {
			t.Errorf("%s: %q, %v; want %q, %q", row.name, got, err, row.want, row.err)
		}
	}
	got, err := Assemble(files, "early", given, func(file string, src []byte) []byte {
		return []byte(strings.ReplaceAll(string(src), "b()", file+"!"))
	})
	if err != nil || !strings.Contains(got, "b!\n") {
		t.Errorf("altered: %q, %v", got, err)
	}
}
