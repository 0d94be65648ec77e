// Package api is the daemon's HTTP side: producers offer jobs and ask about them, and operators ask
// how the daemon is doing.
//
//	POST /v1/downstreams/{d}/tenants/{t}/jobs        a job, see wire.ReadSpec → 202, or 409, 429, 503 for a refusal
//	GET  /v1/downstreams/{d}/tenants/{t}/jobs/{id}   what is known of it → 200 or 404
//	GET  /healthz                                    200 while the process lives
//	GET  /readyz                                     200 while it can do its work, else 503
//	GET  /metrics                                    for Prometheus
//
// The answer to an offered job, accepted or refused, is a wire.Result. Everything else that goes
// wrong is a problem of RFC 9457 with type, title, status, detail and, where one field is to blame,
// field. 429 and 503 carry Retry-After, unless no wait would help. While the store of a
// downstream does not answer, requests that need it are answered with 503 at once. Where admission
// rules were asked, 202 and 429 carry LimitHeaders.
//
// Only the downstreams that the daemon knows are served: a job for a mistyped one would wait for
// ever.
package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/jobshaper/jobshaper/internal/problem"
	"github.com/jobshaper/jobshaper/shaper"
)

// Client offers and finds jobs of one downstream; *shaper.Client is one.
type Client interface {
	OfferMany(ctx context.Context, specs []shaper.Spec) []shaper.Offered
	Find(ctx context.Context, tenant, id string) (shaper.Job, error)
}

// Hitters counts which tenants offer, and are refused, the most; *policing.Hitters is one.
type Hitters interface {
	Offer(tenant string)
	Refuse(tenant string)
}

// Config is set once for a handler.
type Config struct {
	Clients  map[string]Client // by downstream; nil = this process takes no jobs, and serves only health and metrics
	Tokens   []string          // whoever sends one of them may use the API; none = everybody may
	Loopback bool              // only this machine can reach the listener
	Ready    func(context.Context) error
	Registry *prometheus.Registry // what /metrics shows; the API's own metrics are added

	LimitHeaders LimitHeaders       // which headers tell producers about the admission rules
	Hitters      map[string]Hitters // by downstream: counts what tenants offer; nil = nothing does

	// Confirm is, for each downstream, how long replicas may take to confirm an offered job, on top
	// of the time that the store itself may take.
	Confirm map[string]time.Duration

	Log *slog.Logger
}

// Handler is the API. While a store is away it owns a goroutine that asks whether it is back.
type Handler struct {
	http.Handler
	stores   map[string]*store // by downstream
	probes   *probes
	failures *failures
}

// Close ends the goroutines, and waits for them. It may be called twice; requests are still
// answered after it.
func (h *Handler) Close() {
	h.probes.stop()
	h.failures.close()
}

// New returns the handler.
func New(cfg Config) (*Handler, error) {
	h := &Handler{stores: map[string]*store{}, probes: newProbes()}
	for name, client := range cfg.Clients {
		timeout := min(storeTimeout+cfg.Confirm[name], confirmTimeout)
		h.stores[name] = &store{client: client, downstream: name, timeout: timeout, probes: h.probes, log: cfg.Log}
	}
	jobs := jobsHandler{stores: h.stores, headers: cfg.LimitHeaders, hitters: cfg.Hitters, log: cfg.Log}
	var err error
	if jobs.refused, err = newRefusals(cfg.Registry); err != nil {
		return nil, err
	}
	if jobs.spared, err = h.newStoreMetrics(cfg.Registry); err != nil {
		return nil, err
	}
	guard, err := newGuard(cfg)
	if err != nil {
		return nil, err
	}
	h.failures = guard.failures
	metrics := promhttp.HandlerFor(cfg.Registry, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(cfg.Log.Handler(), slog.LevelWarn), ErrorHandling: promhttp.ContinueOnError,
		MaxRequestsInFlight: 4, Timeout: 10 * time.Second,
	})
	mux := http.NewServeMux()
	if cfg.Clients != nil {
		mux.Handle("/v1/downstreams/{downstream}/tenants/{tenant}/jobs", guard.protect(only(http.MethodPost, jobs.offer)))
		mux.Handle("/v1/downstreams/{downstream}/tenants/{tenant}/jobs/{id}", guard.protect(only(http.MethodGet, jobs.show)))
	}
	mux.Handle("/metrics", guard.protect(only(http.MethodGet, metrics.ServeHTTP)))
	mux.HandleFunc("/healthz", only(http.MethodGet, func(w http.ResponseWriter, _ *http.Request) { plain(w, http.StatusOK, "ok") }))
	mux.HandleFunc("/readyz", only(http.MethodGet, func(w http.ResponseWriter, r *http.Request) { h.ready(w, r, cfg.Ready) }))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		problem.Problem{Status: http.StatusNotFound, Detail: "no such path; jobs are at /v1/downstreams/{d}/tenants/{t}/jobs"}.Write(w)
	})
	h.Handler = guard.browsers(mux)
	return h, nil
}

// ready asks whether the daemon can do its work, for no longer than a load balancer waits. While
// the stores of only some downstreams are away, it can: no other daemon is better off, and a
// balancer that believed otherwise would take the API from the downstreams that are well.
func (h *Handler) ready(w http.ResponseWriter, r *http.Request, ask func(context.Context) error) {
	away := 0
	for _, s := range h.stores {
		if s.away() {
			away++
		}
	}
	if away > 0 && away == len(h.stores) {
		notReady(w, storeAway)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), time.Second)
	defer cancel()
	if err := ask(ctx); err != nil {
		text := err.Error()
		if errors.Is(err, shaper.ErrStore) {
			text = storeAway // the reason may name hosts
		}
		notReady(w, text)
		return
	}
	text := "ready"
	if away > 0 {
		text += fmt.Sprintf("; the store does not answer for %d of %d downstreams", away, len(h.stores))
	}
	plain(w, http.StatusOK, text)
}

const storeAway = "the store does not answer"

func notReady(w http.ResponseWriter, why string) {
	w.Header().Set("Retry-After", "1")
	plain(w, http.StatusServiceUnavailable, why)
}

func plain(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n")) // a client that went away needs no answer
}

// only lets one method pass; GET lets HEAD pass too.
func only(method string, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method == method || method == http.MethodGet && r.Method == http.MethodHead {
			next(w, r)
			return
		}
		w.Header().Set("Allow", method)
		problem.Problem{Status: http.StatusMethodNotAllowed, Detail: r.Method + " is not served here: want " + method}.Write(w)
	}
}

// newRefusals makes the count of refused jobs. Every other series about jobs is read from Redis;
// refusals leave no trace there, so each process counts its own.
func newRefusals(reg prometheus.Registerer) (*prometheus.CounterVec, error) {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "shaper_refused_total",
		Help: "Jobs that this process refused over HTTP, by reason."}, []string{"downstream", "reason"})
	return c, reg.Register(c)
}

// newStoreMetrics registers which stores are away, and makes the count of requests that were spared
// the wait for them.
func (h *Handler) newStoreMetrics(reg prometheus.Registerer) (*prometheus.CounterVec, error) {
	for name, s := range h.stores {
		away := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "shaper_http_store_away", ConstLabels: prometheus.Labels{"downstream": name},
			Help: "Whether the store does not answer, so that HTTP requests are refused at once."},
			func() float64 {
				if s.away() {
					return 1
				}
				return 0
			})
		if err := reg.Register(away); err != nil {
			return nil, err
		}
	}
	spared := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "shaper_http_spared_total",
		Help: "HTTP requests that were refused at once because the store did not answer."}, []string{"downstream"})
	return spared, reg.Register(spared)
}
