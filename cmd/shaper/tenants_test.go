package main

import (
	"testing"

	"github.com/jobshaper/jobshaper/shaper"
)

func TestStateOfATenant(t *testing.T) {
	for want, info := range map[string]shaper.TenantInfo{
		"open":                                {InARow: shaper.ThrottledFor - 1},
		"paused":                              {Paused: true},
		"open, throttled 10 times in a row":   {InARow: shaper.ThrottledFor},
		"paused, throttled 12 times in a row": {Paused: true, InARow: 12},
	} {
		if got := tenantState(info); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
