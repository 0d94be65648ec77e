package app

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jobshaper/jobshaper/internal/test/redistest"
)

// A daemon that was not told where to listen runs on if the default address is taken.
func TestMayListen(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var log logged
	cfg := log.in(testConfig(nothing))
	cfg.Redis, cfg.Listen, cfg.MayListen = redistest.Start(t).URL(), taken.Addr().String(), true
	d := begin(t, cfg)
	if d.Address != "" {
		t.Errorf("it listens at %s", d.Address)
	}
	log.until(t, "no HTTP API")
	log.until(t, "see --listen")
	d.end()
	taken.Close()
	d = begin(t, cfg)
	if d.Address != cfg.Listen {
		t.Errorf("it listens at %q, want %s, which is free", d.Address, cfg.Listen)
	}
	d.until("/readyz", 200, "")
	d.end()
}

func TestUnixSocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "sock")
	cfg := testConfig(nothing)
	cfg.Redis, cfg.Listen = redistest.Start(t).URL(), "unix:"+path
	d := begin(t, cfg)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}}
	resp, err := client.Post("http://localhost"+jobsPath, "application/json", strings.NewReader(`{"type":"x"}`))
	if err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if resp.StatusCode != 202 || d.Address != cfg.Listen {
		t.Errorf("at %s: %d %s", d.Address, resp.StatusCode, b)
	}
	d.end()
	if _, err := os.Lstat(path); err == nil {
		t.Error("the socket is left")
	}
}
