package shaper

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// A body is what is kept of a job while it has not ended, written once:
//
//	since max_wait attempts keep timeout digest\ntype\nheaders\npayload
//
// since (µs since the epoch) is put before it by the enqueue script; max_wait, keep and timeout are ms, and 0 where the
// tenant's policy decides; headers are a JSON object, or nothing. The scripts read its first line, see lua/lib/job.lua.

// encode returns a Spec's body without since, and its digest. The digest tells a job that is offered again from another one
// under the same id, and a call that is repeated from either. An id that was made up for this call says both by itself.
func (s *Spec) encode(named bool) (body, digest string, err error) {
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

// envelope is a decoded body.
type envelope struct {
	since    time.Time
	attempts int
	timeout  time.Duration
	typ      string
	headers  map[string]string
	payload  []byte
}

func decodeBody(body string) (envelope, error) {
	parts := bytes.SplitN([]byte(body), []byte("\n"), 4)
	if len(parts) != 4 {
		return envelope{}, fmt.Errorf("decode job body: %d parts, want 4", len(parts))
	}
	f := strings.Fields(string(parts[0]))
	if len(f) != 6 {
		return envelope{}, fmt.Errorf("decode job body: %d numbers, want 6", len(f))
	}
	n := make([]int64, 5)
	for i := range n {
		v, err := strconv.ParseInt(f[i], 10, 64)
		if err != nil {
			return envelope{}, fmt.Errorf("decode job body: %w", err)
		}
		n[i] = v
	}
	e := envelope{since: instant(n[0]), attempts: int(n[2]), timeout: time.Duration(n[4]) * time.Millisecond,
		typ: string(parts[1]), payload: parts[3]}
	if len(parts[2]) > 0 {
		if err := json.Unmarshal(parts[2], &e.headers); err != nil {
			return envelope{}, fmt.Errorf("decode job headers: %w", err)
		}
	}
	return e, nil
}

var ids = base32.HexEncoding.WithPadding(base32.NoPadding)

// NewID returns a fresh job id: a version 7 UUID in 26 lower-case letters and digits, so later ids sort after earlier ones.
func NewID() string {
	u, err := uuid.NewV7()
	if err != nil {
		panic(err) // the system has no randomness
	}
	return strings.ToLower(ids.EncodeToString(u[:]))
}

// nonce names one call, so that a repeated one is recognised.
func nonce() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	return base64.RawURLEncoding.EncodeToString(b[:])
}
