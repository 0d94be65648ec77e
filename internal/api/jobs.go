package api

import (
	"errors"
	"io"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/jobshaper/jobshaper/internal/api/wire"
	"github.com/jobshaper/jobshaper/internal/problem"
	"github.com/jobshaper/jobshaper/shaper"
)

// maxBody is how many bytes a request may have: enough for the largest payload with every byte
// written as \u0000, and for the other fields.
const maxBody = 6*shaper.DefaultMaxPayload + 16<<10

// jobsHandler takes jobs and tells about them.
type jobsHandler struct {
	stores  map[string]*store
	refused *prometheus.CounterVec
	spared  *prometheus.CounterVec
	headers LimitHeaders
	hitters map[string]Hitters
	log     *slog.Logger
}

func (h jobsHandler) store(r *http.Request) (*store, error) {
	name := r.PathValue("downstream")
	if err := shaper.ValidName("downstream", name); err != nil {
		return nil, err
	}
	s, ok := h.stores[name]
	if !ok {
		return nil, &unknownDownstream{name}
	}
	return s, nil
}

// unknownDownstream wraps shaper.ErrNotFound.
type unknownDownstream struct{ name string }

func (e *unknownDownstream) Error() string {
	return "downstream " + e.name + " is not served by this daemon: want one that its configuration names"
}
func (e *unknownDownstream) Unwrap() error { return shaper.ErrNotFound }

func (h jobsHandler) offer(w http.ResponseWriter, r *http.Request) {
	if enc := r.Header.Get("Content-Encoding"); enc != "" && enc != "identity" {
		problem.Problem{Status: http.StatusUnsupportedMediaType, Detail: "Content-Encoding: want none, since a small body could become a large one"}.Write(w)
		return
	}
	result, err := h.read(w, r)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	h.count(result)
	status := statusOf(result)
	if status == http.StatusAccepted {
		w.Header().Set("Location", r.URL.Path+"/"+result.ID)
	} else {
		h.refused.WithLabelValues(result.Downstream, result.Reason).Inc()
	}
	h.headers.write(w.Header(), result.Admission)
	if (status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable) && result.RetryAfter >= 0 {
		problem.SetRetryAfter(w.Header(), result.RetryAfter)
	}
	problem.WriteJSON(w, status, "application/json", wire.NewResult(result))
}

// count counts an answered job for the tenant.
func (h jobsHandler) count(r shaper.Result) {
	hitters := h.hitters[r.Downstream]
	if hitters == nil {
		return
	}
	hitters.Offer(r.Tenant)
	if r.Status == shaper.Refused {
		hitters.Refuse(r.Tenant)
	}
}

// read reads a job from a request and offers it. A request does not wait for room, whatever the
// tenant's policy.
func (h jobsHandler) read(w http.ResponseWriter, r *http.Request) (shaper.Result, error) {
	store, err := h.store(r)
	if err != nil {
		return shaper.Result{}, err
	}
	tenant := r.PathValue("tenant")
	if err := shaper.ValidName("tenant", tenant); err != nil {
		return shaper.Result{}, err
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return shaper.Result{}, badBody(err)
	}
	spec, err := wire.ReadSpec(body, shaper.Spec{Tenant: tenant}, false)
	if err != nil {
		return shaper.Result{}, err
	}
	return store.offer(r.Context(), spec)
}

// badBody is the error for a body that cannot be read: too large, too slow, or cut off.
func badBody(err error) error {
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return err
	}
	return &wire.Error{Problem: "the body ends too early or came too slowly"}
}

func (h jobsHandler) show(w http.ResponseWriter, r *http.Request) {
	store, err := h.store(r)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	job, err := store.find(r.Context(), r.PathValue("tenant"), r.PathValue("id"))
	if err != nil {
		h.fail(w, r, err)
		return
	}
	problem.WriteJSON(w, http.StatusOK, "application/json", wire.NewJob(job))
}

func (h jobsHandler) fail(w http.ResponseWriter, r *http.Request, err error) {
	p := problemOf(err)
	if errors.Is(err, errSpared) {
		h.spared.WithLabelValues(r.PathValue("downstream")).Inc() // the log says once that the store is away
	} else if p.Status >= http.StatusInternalServerError {
		h.log.Warn("request failed", "method", r.Method, "path", r.URL.Path, "status", p.Status, "err", err)
	}
	p.Write(w)
}

// statusOf is the status for the answer to an offered job.
func statusOf(r shaper.Result) int {
	switch {
	case r.Status == shaper.Accepted:
		return http.StatusAccepted
	case r.Reason == shaper.RefusedConflict || r.Reason == shaper.RefusedDead:
		return http.StatusConflict
	case r.Reason == shaper.RefusedMemory || r.Reason == shaper.RefusedParked:
		return http.StatusServiceUnavailable
	case r.Reason == shaper.RefusedLimited:
		return http.StatusTooManyRequests
	case r.RetryAfter < 0: // a tenant that is not served: asking again is of no use
		return http.StatusNotFound
	}
	return http.StatusTooManyRequests
}
