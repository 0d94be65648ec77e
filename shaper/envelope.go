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
// tenant's policy decides; headers are a JSON object, or nothing. The scripts read its first line, see lua/job.lua.

// encode returns a Spec's body without since, and its digest.
func (s *Spec) encode(nonce string, named bool) (body, digest string, err error) {
	headers := ""
	if len(s.Headers) > 0 {
		b, err := json.Marshal(s.Headers)
		if err != nil {
			return "", "", fmt.Errorf("encode headers: %w", err)
		}
		headers = string(b)
	}
	digest = "." + nonce
	if named {
		h := sha256.New()
		// Lengths keep the parts apart; json.Marshal sorts the keys of headers.
		fmt.Fprintf(h, "%d %d %d\n%s%s", len(s.Type), len(headers), len(s.Payload), s.Type, headers)
		h.Write(s.Payload)
		digest = base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:16]) + digest
	}
	wait := s.MaxWait / time.Millisecond
	if s.MaxWait < 0 {
		wait = -1
	}
	var b strings.Builder
	b.Grow(64 + len(s.Type) + len(headers) + len(s.Payload))
	fmt.Fprintf(&b, "%d %d %d %d %s\n%s\n%s\n", wait, s.MaxAttempts, s.Retention/time.Millisecond, s.Timeout/time.Millisecond, digest, s.Type, headers)
	b.Write(s.Payload)
	return b.String(), digest, nil
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
