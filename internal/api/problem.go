package api

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/jobshaper/jobshaper/internal/api/wire"
	"github.com/jobshaper/jobshaper/internal/problem"
	"github.com/jobshaper/jobshaper/shaper"
)

// problemOf turns an error of the packages below into a problem.
func problemOf(err error) problem.Problem {
	var (
		large *shaper.PayloadTooLargeError
		body  *http.MaxBytesError
		field *shaper.FieldError
		text  *wire.Error
		alone *shaper.UnconfirmedError
		state *shaper.UnreadableError
	)
	p := problem.Problem{Status: http.StatusBadRequest, Detail: err.Error()}
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
	case errors.As(err, &state):
		p.Status, p.Detail = http.StatusServiceUnavailable, state.Error()
	case errors.Is(err, shaper.ErrStore):
		p.Status = http.StatusServiceUnavailable
		p.Detail = "the store does not answer; whether the job was accepted is unknown: offer it again under the same id"
	case !errors.Is(err, shaper.ErrInvalid):
		p.Status = http.StatusInternalServerError
		p.Detail = "this should not happen; the daemon's log says more"
	}
	return p
}
