package api

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/jobshaper/jobshaper/internal/test/testenv"
	"github.com/jobshaper/jobshaper/shaper"
)

// listening serves the API with the limits of NewServer, for clients that mean harm, and returns
// its address.
func listening(t *testing.T, client Client) string {
	t.Helper()
	h, err := New(Config{Clients: map[string]Client{"d": client}, Loopback: true, Registry: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	l, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := NewServer(h, slog.New(slog.DiscardHandler))
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("serve: %v", err)
		}
	})
	return l.Addr().String()
}

// Clients that begin requests and never end them keep nobody else from the API, and are cut off.
func TestHalfOpenConnections(t *testing.T) {
	t.Parallel()
	const half = 500
	address := listening(t, stub{outcome: shaper.Offered{Result: shaper.Result{ID: "j", Status: shaper.Accepted}}})
	conns := make([]net.Conn, half)
	for i := range conns {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, "POST "+jobsPath+" HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "); err != nil {
			t.Fatal(err)
		}
		conns[i] = conn
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	for range 20 {
		resp, err := client.Post("http://"+address+jobsPath, "application/json", strings.NewReader(`{"type":"x"}`))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusAccepted {
			t.Errorf("status %d beside %d half-open connections", resp.StatusCode, half)
		}
	}
	for i, conn := range conns { // ReadHeaderTimeout later
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("connection %d is still open a minute later", i)
		}
	}
}

// Clients beyond those that are served at a time wait until one of those leaves.
func TestConnectionsAreLimited(t *testing.T) {
	address := listening(t, stub{outcome: shaper.Offered{Result: shaper.Result{ID: "j", Status: shaper.Accepted}}})
	begun := time.Now()
	conns := make([]net.Conn, maxConnections)
	for i := range conns {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns[i] = conn
	}
	answered := make(chan error, 1)
	go func() {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
		resp, err := client.Post("http://"+address+jobsPath, "application/json", strings.NewReader(`{"type":"x"}`))
		if err == nil {
			err = resp.Body.Close()
		}
		answered <- err
	}()
	select {
	case err := <-answered:
		if time.Since(begun) < 5*time.Second { // then the first ones are cut off
			t.Fatalf("answered beside %d connections: %v", maxConnections, err)
		}
	case <-time.After(100 * time.Millisecond): // an answer in this time would be a fault
	}
	_ = conns[0].Close()
	if err := <-answered; err != nil {
		t.Errorf("not answered although another client has left: %v", err)
	}
}

// A request that never ends is not read, so it takes no memory.
func TestEndlessRequests(t *testing.T) {
	address := listening(t, stub{})
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for _, row := range []struct{ head, more string }{
		{"POST " + jobsPath + " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1073741824\r\n\r\n", strings.Repeat(" ", 1<<20)},
		{"POST " + jobsPath + " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1073741824\r\n\r\n", strings.Repeat("[", 1<<20)},
		{"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Huge: ", strings.Repeat("x", 1<<20)},
	} {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		sent, err := io.WriteString(conn, row.head)
		for range 1 << 10 { // 1 GiB, if anybody takes it
			var n int
			n, err = io.WriteString(conn, row.more)
			if sent += n; err != nil {
				break
			}
		}
		_ = conn.Close()
		if err == nil || sent > 64<<20 {
			t.Errorf("%.20s: %d bytes were taken, %v", row.more, sent, err)
		}
	}
	after := heap()
	for begun := time.Now(); after > before+20<<20 && time.Since(begun) < testenv.Patience; after = heap() {
		time.Sleep(10 * time.Millisecond) // the server may not have noticed yet that its clients are gone
	}
	if after > before+20<<20 {
		t.Errorf("the heap grew from %d to %d bytes", before, after)
	}
}

// Nothing is served that helps programmers, and so attackers.
func TestNothingElseIsServed(t *testing.T) {
	url := serveOn(t, stub{}, nil)
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline", "/debug/vars", "/debug", "/", "/v1", "/v1/downstreams"} {
		if a := ask(t, "GET", url+path, ""); a.status != 404 {
			t.Errorf("%s: %d", path, a.status)
		}
	}
}
