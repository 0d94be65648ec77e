package wire

import (
	"unicode/utf8"

	"github.com/jobshaper/jobshaper/shaper"
)

// Job is a shaper.Job in JSON. Times are RFC 3339 with µs by Redis' clock, null where there is
// none.
type Job struct {
	ID         string            `json:"id"`
	Tenant     string            `json:"tenant"`
	Downstream string            `json:"downstream"`
	Type       string            `json:"type"`
	State      string            `json:"state"`
	Position   int               `json:"position"` // 1 leaves next; 0 = does not wait
	Attempt    int               `json:"attempt"`  // starts so far
	Charged    int               `json:"charged"`  // how many of those count against max_attempts
	Crashes    int               `json:"crashes"`
	Blamed     int               `json:"blamed"`  // how many of those count against max_crashes
	Suspect    bool              `json:"suspect"` // it runs apart from other suspects
	Throttles  int               `json:"throttles"`
	Accepted   *string           `json:"accepted"`
	Due        *string           `json:"due"`
	Slot       *string           `json:"slot"` // of its last start
	Ended      *string           `json:"ended"`
	Reason     string            `json:"reason,omitempty"`
	Error      string            `json:"error,omitempty"`
	Headers    map[string]string `json:"headers,omitempty"`
	// Bytes are text where they are UTF-8, else base64.
	Payload       string `json:"payload,omitempty"`
	PayloadBase64 []byte `json:"payload_base64,omitempty"`
	Result        string `json:"result,omitempty"`
	ResultBase64  []byte `json:"result_base64,omitempty"`
}

// NewJob returns j in JSON.
func NewJob(j shaper.Job) Job {
	out := Job{
		ID: j.ID, Tenant: j.Tenant, Downstream: j.Downstream, Type: j.Type, State: string(j.State), Position: j.Position,
		Attempt: j.Attempt, Charged: j.Charged, Crashes: j.Crashes, Blamed: j.Blamed, Suspect: j.Suspect, Throttles: j.Throttles, Accepted: timestamp(j.Accepted), Due: timestamp(j.Due),
		Slot: timestamp(j.Slot), Ended: timestamp(j.EndedAt), Reason: j.Reason, Error: j.Error, Headers: j.Headers,
	}
	out.Payload, out.PayloadBase64 = textOrBytes(j.Payload)
	out.Result, out.ResultBase64 = textOrBytes(j.Result)
	return out
}

func textOrBytes(b []byte) (string, []byte) {
	if utf8.Valid(b) {
		return string(b), nil
	}
	return "", b
}
