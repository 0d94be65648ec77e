package queue

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Body is what is kept of a job while it has not ended, written once:
//
//	since max_wait max_attempts retention timeout digest\ntype\nheaders\npayload
//
// The enqueue script puts since (µs since the epoch) in front. max_wait, retention and timeout are
// ms, and 0 where the tenant's policy decides; headers are a JSON object, or nothing. The scripts
// read the first line, see lua/lib/job.lua.
type Body struct {
	Since       time.Time // when the job was accepted or became due; Encode leaves it out
	MaxWait     time.Duration
	MaxAttempts int
	Retention   time.Duration
	Timeout     time.Duration
	Type        string
	Headers     map[string]string
	Payload     []byte
}

// Encode returns the body without Since, and its digest. The digest tells a job that is offered
// again from another one under the same id, and a repeated call from either. A job that is not
// named has an id that was made up for this call, which tells both by itself.
func (s *Body) Encode(named bool) (body, digest string, err error) {
	headers := ""
	if len(s.Headers) > 0 {
		b, err := json.Marshal(s.Headers)
		if err != nil {
			return "", "", fmt.Errorf("encode headers: %w", err)
		}
		headers = string(b)
	}
	digest = "."
	if named {
		h := sha256.New()
		// Lengths keep the parts apart; json.Marshal sorts the keys of headers.
		fmt.Fprintf(h, "%d %d %d\n%s%s", len(s.Type), len(headers), len(s.Payload), s.Type, headers)
		h.Write(s.Payload)
		digest = base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:16]) + "." + nonce()
	}
	wait := int64(s.MaxWait / time.Millisecond)
	if s.MaxWait < 0 {
		wait = -1
	}
	b := make([]byte, 0, 64+len(s.Type)+len(headers)+len(s.Payload))
	for _, n := range []int64{wait, int64(s.MaxAttempts), int64(s.Retention / time.Millisecond), int64(s.Timeout / time.Millisecond)} {
		b = append(strconv.AppendInt(b, n, 10), ' ')
	}
	b = append(append(append(b, digest...), '\n'), s.Type...)
	b = append(append(append(b, '\n'), headers...), '\n')
	return string(append(b, s.Payload...)), digest, nil
}

// ReadBody reads what Redis keeps of a job.
func ReadBody(body string) (Body, error) {
	parts := bytes.SplitN([]byte(body), []byte("\n"), 4)
	if len(parts) != 4 {
		return Body{}, fmt.Errorf("decode job body: %d parts, want 4", len(parts))
	}
	f := strings.Fields(string(parts[0]))
	if len(f) < 6 { // newer versions may add more
		return Body{}, fmt.Errorf("decode job body: %d numbers, want 6", len(f))
	}
	n := make([]int64, 5)
	for i := range n {
		v, err := strconv.ParseInt(f[i], 10, 64)
		if err != nil {
			return Body{}, fmt.Errorf("decode job body: %w", err)
		}
		n[i] = v
	}
	b := Body{Since: Instant(n[0]), MaxWait: time.Duration(n[1]) * time.Millisecond, MaxAttempts: int(n[2]),
		Retention: time.Duration(n[3]) * time.Millisecond, Timeout: time.Duration(n[4]) * time.Millisecond,
		Type: string(parts[1]), Payload: parts[3]}
	if len(parts[2]) > 0 {
		if err := json.Unmarshal(parts[2], &b.Headers); err != nil {
			return Body{}, fmt.Errorf("decode job headers: %w", err)
		}
	}
	return b, nil
}

// nonce names one call, by which it is recognised when it is repeated.
func nonce() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	return base64.RawURLEncoding.EncodeToString(b[:])
}
