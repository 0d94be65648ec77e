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

// Tokens reads SHAPER_API_TOKENS: tokens, separated by commas.
func Tokens(list string) []string {
	var tokens []string
	for t := range strings.SplitSeq(list, ",") {
		if t = strings.TrimSpace(t); t != "" {
			tokens = append(tokens, t)
		}
	}
	return tokens
}

// Loopback reports whether only this machine can reach a listener at address. It is an error, which wraps
// shaper.ErrInvalid, if others can and there is no token: they could have commands run here.
func Loopback(ctx context.Context, address string, tokens []string) (bool, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false, &shaper.FieldError{Field: "listen", Value: address, Want: "HOST:PORT, such as 127.0.0.1:8080"}
	}
	if isLoopback(ctx, host) {
		return true, nil
	}
	if len(tokens) == 0 {
		return false, &shaper.FieldError{Field: "listen", Value: address,
			Want: "a loopback address such as 127.0.0.1:8080, or tokens in SHAPER_API_TOKENS that clients must send: others than this machine can reach that address"}
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

// NewServer returns a server for the handler with limits for everything that a client could draw out.
func NewServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       15 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       60 * time.Second,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug), // what clients do wrong is their affair
	}
}

// maxConnections is how many clients are connected at a time; others wait to be accepted. With the limits of NewServer it bounds what
// connections cost, whoever opens them.
const maxConnections = 1000

// Listen opens the listener for NewServer, with a limit on connections.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w: want a free port, see --listen", address, err)
	}
	return netutil.LimitListener(l, maxConnections), nil
}
