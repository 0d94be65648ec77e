package trace

import (
	"encoding/json"

	"github.com/jobshaper/jobshaper/internal/api/wire"
)

// MarshalJSON writes the row as the command-line contract has it, times in µs.
func (r Row) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		At         int64 `json:"at_us"`
		N          int64 `json:"n"`
		Allowed    bool  `json:"allowed"`
		Remaining  int64 `json:"remaining"`
		RetryAfter int64 `json:"retry_after_us"` // -1 = never
		ResetAfter int64 `json:"reset_after_us"`
	}{r.At, r.N, r.Allowed, r.Remaining, wire.Micros(r.RetryAfter), wire.Micros(r.ResetAfter)})
}

// MarshalJSON writes the row as the command-line contract has it, times in µs.
func (r QueueRow) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		At         int64 `json:"at_us"`
		Allowed    bool  `json:"allowed"`
		Wait       int64 `json:"wait_us"`
		RetryAfter int64 `json:"retry_after_us"`
	}{r.At, r.Allowed, wire.Micros(r.LeavesIn), wire.Micros(r.RetryAfter)})
}
