package api

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/net/netutil"

	"github.com/jobshaper/jobshaper/shaper"
)

// minToken is how many bytes a token has at least: fewer can be guessed.
const minToken = 16

// Tokens reads SHAPER_API_TOKENS: tokens, separated by commas. An error, a *shaper.FieldError, quotes
// none.
func Tokens(list string) ([]string, error) {
	var tokens []string
	for t := range strings.SplitSeq(list, ",") {
		if t = strings.TrimSpace(t); t == "" {
			continue
		}
		tokens = append(tokens, t)
		if len(t) < minToken {
			return nil, &shaper.FieldError{Field: "SHAPER_API_TOKENS", Value: fmt.Sprintf("token %d, of %d bytes", len(tokens), len(t)),
				Want: fmt.Sprintf("at least %d, such as openssl rand -hex 16 prints", minToken)}
		}
	}
	return tokens, nil
}

// Loopback reports whether only this machine can reach a listener at address. It is an error, which
// wraps shaper.ErrInvalid, if others can and there is no token: they could have commands run here.
func Loopback(ctx context.Context, address string, tokens []string) (bool, error) {
	if path, ok := socketPath(address); ok && path != "" {
		return true, nil
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false, &shaper.FieldError{Field: "listen", Value: address, Want: "HOST:PORT, such as 127.0.0.1:8080, or unix:/PATH"}
	}
	if isLoopback(ctx, host) {
		return true, nil
	}
	if len(tokens) == 0 {
		return false, &shaper.FieldError{Field: "listen", Value: address,
			Want: "a loopback address such as 127.0.0.1:8080, or tokens in SHAPER_API_TOKENS that clients must send: other machines can reach that address"}
	}
	return false, nil
}

func isLoopback(ctx context.Context, host string) bool {
	if host == "" {
		return false // all addresses
	}
	ips, err := net.DefaultResolver.LookupIP(ctx, "ip", host)
	for _, ip := range ips {
		if !ip.IsLoopback() {
			return false
		}
	}
	return err == nil && len(ips) > 0
}

// NewServer returns a server for the handler, with a limit on everything that a client could drag
// out.
func NewServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       15 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       60 * time.Second,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug), // what clients do wrong is their business
	}
}

// maxConnections is how many clients are connected at a time; others wait to be accepted. With the
// limits of NewServer it bounds what connections cost, whoever opens them.
const maxConnections = 1000

// Listen opens the listener for NewServer, at HOST:PORT or unix:/PATH, with a limit on connections.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	var l net.Listener
	var err error
	if path, ok := socketPath(address); ok {
		l, err = listenUnix(ctx, path)
	} else {
		l, err = (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	}
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w: want one that is free, see --listen", address, err)
	}
	return netutil.LimitListener(l, maxConnections), nil
}

// Address is where a listener listens, as Listen reads it.
func Address(l net.Listener) string {
	if l.Addr().Network() == "unix" {
		return "unix:" + l.Addr().String()
	}
	return l.Addr().String()
}

// socketPath is the path of an address unix:/PATH.
func socketPath(address string) (string, bool) { return strings.CutPrefix(address, "unix:") }
