package history

import (
	"strings"
	"testing"
	"time"
)

// TestBound: a bucket with room for two, from which tickets leave at most 10 ms before the slot.
func TestBound(t *testing.T) {
	const full = `
		 0 offer a/1
		 1 accept a/1
		 2 offer a/2
		 3 accept a/2
	`
	for _, tc := range []struct{ name, text, want string }{
		{"full, and then one has left", full + `
			 10 offer a/3
			 11 refuse a/3 outcome=full
			100 start a/1 slot=100
			101 offer a/4
			102 accept a/4`, ""},
		{"one over the bound", full + `
			 10 offer a/3
			 11 accept a/3
			100 start a/1 slot=100`, `job "3" at 0.011000s: accepted while at least 2 waited, want at most 2`},
		{"its ticket may have left before its slot", full + `
			 90.5 offer a/3
			 91 accept a/3
			100 start a/1 slot=100`, ""},
		{"the slot counts, not a late start", full + `
			 60 offer a/3
			 61 accept a/3
			100 start a/1 slot=60`, ""},
		{"refused, and there was room", `
			 0 offer a/1
			 1 accept a/1
			 2 offer a/2
			 3 refuse a/2 outcome=full`, `refused as full while at most 1 waited, want 2`},
		{"refused, and there was room again", full + `
			100 start a/1 slot=100
			101 offer a/3
			102 refuse a/3 outcome=full`, `refused as full while at most 1 waited`},
		{"refused while another offer was on its way", `
			 0 offer a/1
			 1 accept a/1
			 2 offer a/2
			 3 offer a/3
			 4 refuse a/3 outcome=full
			 5 accept a/2`, ""},
		{"two on their way, room for one", `
			 0 offer a/1
			 1 accept a/1
			 2 offer a/2
			 2 offer a/3
			 4 accept a/3
			 5 offer a/4
			 6 accept a/4
			 7 accept a/2`, `job "4" at 0.006000s: accepted while at least 2 waited`},
		{"refused for another reason", `
			 0 offer a/1
			 1 refuse a/1 outcome=limited`, ""},
		{"another tenant's", full + `
			 0 offer b/1
			 1 accept b/1`, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, v := range Bound(script(t, tc.text), "a", 2, 10*time.Millisecond) {
				got = append(got, v.String())
			}
			if text := strings.Join(got, "\n"); (tc.want == "") != (text == "") || !strings.Contains(text, tc.want) {
				t.Errorf("found %q, want %q", text, tc.want)
			}
		})
	}
}
