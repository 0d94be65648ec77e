package api

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/jobshaper/jobshaper/internal/api/wire"
	"github.com/jobshaper/jobshaper/shaper"
)

// problem is an error as RFC 9457 writes it.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Field  string `json:"field,omitempty"` // which field of the request is to blame
}

func (p problem) write(w http.ResponseWriter) {
	p.Type = "about:blank" // says RFC 9457: the status tells all there is to branch on
	p.Title = http.StatusText(p.Status)
	if p.Status == http.StatusServiceUnavailable {
		setRetryAfter(w, time.Second)
	}
	writeJSON(w, p.Status, "application/problem+json", p)
}

// problemOf is the problem for an error of the packages below.
func problemOf(err error) problem {
	var (
		large *shaper.PayloadTooLargeError
		body  *http.MaxBytesError
		field *shaper.FieldError
		text  *wire.Error
		alone *shaper.UnconfirmedError
	)
	p := problem{Status: http.StatusBadRequest, Detail: err.Error()}
	switch {
	case errors.As(err, &large):
		p.Status, p.Field = http.StatusRequestEntityTooLarge, "payload"
	case errors.As(err, &body):
		p.Status = http.StatusRequestEntityTooLarge
		p.Detail = "body: want at most " + strconv.FormatInt(body.Limit, 10) + " bytes"
	case errors.As(err, &field):
		p.Field = field.Field
	case errors.As(err, &text):
		p.Field = text.Field
	case errors.Is(err, shaper.ErrNotFound):
		p.Status = http.StatusNotFound
	case errors.As(err, &alone):
		p.Status = http.StatusServiceUnavailable
		told := *alone
		told.Err = nil // it may name hosts
		p.Detail = told.Error()
	case errors.Is(err, errSpared):
		p.Status = http.StatusServiceUnavailable
	case errors.Is(err, shaper.ErrStore):
		p.Status = http.StatusServiceUnavailable
		p.Detail = "the store does not answer; whether the job was accepted is unknown: offer it again under the same id"
	case !errors.Is(err, shaper.ErrInvalid):
		p.Status = http.StatusInternalServerError
		p.Detail = "this should not happen; the daemon's log tells more"
	}
	return p
}

func writeJSON(w http.ResponseWriter, status int, contentType string, v any) {
	b, err := json.Marshal(v)
	if err != nil { // v is made of strings and numbers
		panic(err)
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // a client that went away needs no answer
}

// setRetryAfter rounds up to whole seconds, the least that the header can say being 1.
func setRetryAfter(w http.ResponseWriter, d time.Duration) {
	seconds := max(1, int64((d+time.Second-1)/time.Second))
	w.Header().Set("Retry-After", strconv.FormatInt(seconds, 10))
}
