package api

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"strings"

	"github.com/jobshaper/jobshaper/internal/problem"
)

// guard decides who may use the API: whoever knows a token, or, where there are none, every program
// on this machine, but no web page in a browser on it.
type guard struct {
	tokens   [][sha256.Size]byte // hashed, so that comparing takes the same time whatever the lengths
	loopback bool
	failures *failures
}

func newGuard(cfg Config) (guard, error) {
	g := guard{loopback: cfg.Loopback}
	for _, t := range cfg.Tokens {
		g.tokens = append(g.tokens, sha256.Sum256([]byte(t)))
	}
	var err error
	g.failures, err = newFailures(cfg.Registry, cfg.Log)
	return g, err
}

// protect asks for a token, where there are any. Who shows none, or a wrong one, again and again has
// to wait; who knows one never does.
func (g guard) protect(next http.Handler) http.Handler {
	if len(g.tokens) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g.knows(r.Header.Get("Authorization")) {
			next.ServeHTTP(w, r)
			return
		}
		if wait := g.failures.note(r); wait > 0 {
			ms := wait.Milliseconds() + 1
			problem.Problem{Status: http.StatusTooManyRequests, Detail: "too many requests without a valid token from this address", RetryAfter: &ms}.Write(w)
			return
		}
		w.Header().Set("WWW-Authenticate", `Bearer realm="shaper"`)
		problem.Problem{Status: http.StatusUnauthorized, Detail: "want the header Authorization: Bearer TOKEN, with one of SHAPER_API_TOKENS"}.Write(w)
	})
}

func (g guard) knows(header string) bool {
	scheme, token, _ := strings.Cut(header, " ")
	given := sha256.Sum256([]byte(strings.TrimSpace(token)))
	known := 0
	for _, t := range g.tokens { // all of them, so that the time reveals nothing
		known |= subtle.ConstantTimeCompare(given[:], t[:])
	}
	return known == 1 && strings.EqualFold(scheme, "Bearer")
}

// browsers refuses what a foreign web page makes a browser send, which the headers that browsers
// add give away. On a loopback address it also refuses host names that are not this machine's, except
// from who knows a token: a page's own name may lead to our address ("DNS rebinding").
func (g guard) browsers(next http.Handler) http.Handler {
	deny := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		problem.Problem{Status: http.StatusForbidden, Detail: "requests from web pages are not served"}.Write(w)
	})
	origin := http.NewCrossOriginProtection()
	origin.SetDenyHandler(deny)
	protected := origin.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if (g.loopback || len(g.tokens) == 0) && !localName(r.Host) && !g.knows(r.Header.Get("Authorization")) {
			deny(w, r)
			return
		}
		protected.ServeHTTP(w, r)
	})
}

// localName reports whether a Host header is an address or localhost.
func localName(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	return host == "localhost" || host == "" || net.ParseIP(host) != nil
}
