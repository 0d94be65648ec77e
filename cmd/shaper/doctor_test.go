package main

import (
	"strings"
	"testing"

	"github.com/jobshaper/jobshaper/shaper"
)

// The doctor reports a job that is in no book, mends it when asked to, and then finds nothing more.
func TestDoctorMendsTheBooks(t *testing.T) {
	c := newConsole(t)
	c.says("doctor", "fit to keep jobs") // there is no downstream yet
	if code, _, stderr := c.run("doctor", "--downstream", "transcode", "--redis", c.url); code != 65 || !strings.Contains(stderr, "this Redis holds nothing of it") {
		t.Errorf("of a downstream that is not there: exit code %d, %s", code, stderr)
	}
	client, err := shaper.NewClient(c.server.Client(), "d", shaper.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"one", "two"} {
		if r, err := client.Offer(t.Context(), shaper.Spec{Tenant: "acme", ID: id, Type: "x"}); err != nil || r.Status != shaper.Accepted {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	c.says("tenants set acme --downstream d --depth 500 --max-ends 2000")
	c.says("doctor --downstream d", "fit to keep jobs",
		"note: downstream d: its policies let 500 jobs wait, 0.1 MB and their payloads (32.9 MB where each has 64 KiB), and 2000 ended jobs be known, 0.2 MB; tenants so far: 1")
	if err := c.server.Client().LRem(t.Context(), "shaper:{d}:w:acme", 1, "one").Err(); err != nil {
		t.Fatal(err)
	}
	if code, out, _ := c.run("doctor", "--downstream", "d", "--redis", c.url); code != 1 ||
		!strings.Contains(out, "books: downstream d: 1 × in no bucket, and would never have started (acme one): shaper doctor --repair --downstream d") ||
		!strings.Contains(out, "1 book fault") {
		t.Errorf("exit code %d, printed\n%s", code, out)
	}
	c.says("doctor --downstream d --repair --json", `"severity":"mended","downstream":"d","kind":"waiting","count":1,"tenant":"acme","of":"one"`,
		`"books":0,"mended":1`)
	c.says("doctor --downstream d --repair --json", `"books":0,"mended":0`)
	c.says("jobs ls --downstream d --tenant acme", "one", "two")
}
