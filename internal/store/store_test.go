package store

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/jobshaper/jobshaper/internal/embedded"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
	"github.com/jobshaper/jobshaper/shaper"
)

func TestMain(m *testing.M) { redistest.VerifyTestMain(m) }

func TestOpenURL(t *testing.T) {
	server := redistest.Start(t, redistest.Password("secret"), redistest.Args("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"))
	_, err := Open(t.Context(), Config{URL: server.URL(), Check: true, Log: slog.New(slog.DiscardHandler)})
	if !errors.Is(err, shaper.ErrStore) || !strings.Contains(err.Error(), "maxmemory-policy allkeys-lru") || strings.Contains(err.Error(), "secret") {
		t.Errorf("a Redis that evicts is accepted: %v", err)
	}
	var log bytes.Buffer
	s, err := Open(t.Context(), Config{URL: server.URL(), Check: true, Accept: true, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.Done() != nil || s.Err() != nil {
		t.Error("a Redis of others' has no end here")
	}
	if !strings.Contains(log.String(), "level=ERROR") || !strings.Contains(log.String(), "JOBS WILL BE LOST OR STUCK: maxmemory-policy allkeys-lru") {
		t.Errorf("no loud warning about a Redis that evicts:\n%s", &log)
	}
	if strings.Contains(s.Describe+log.String(), "secret") {
		t.Errorf("a password shows: %s\n%s", s.Describe, &log)
	}
}

func TestEmbedded(t *testing.T) {
	o := Config{DataDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}
	_, err := Open(t.Context(), o)
	if !errors.Is(err, shaper.ErrStore) || !errors.Is(err, embedded.ErrNoStore) || !strings.Contains(err.Error(), "shaper run") {
		t.Errorf("no daemon runs: %v; want ErrStore and how to start one", err)
	}
	o.Embed = true
	daemon, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := daemon.Client.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Error(err)
	}
	if _, err := Open(t.Context(), o); !errors.Is(err, shaper.ErrStore) {
		t.Errorf("a second daemon: %v", err)
	}
	o.Embed = false
	other, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if v, err := other.Client.Get(t.Context(), "k").Result(); v != "v" || err != nil {
		t.Errorf("another command reads %q, %v", v, err)
	}
	if err := errors.Join(other.Close(), daemon.Close()); err != nil {
		t.Error(err)
	}
	select {
	case <-daemon.Done():
	default:
		t.Error("Close left the embedded store running")
	}
}

// An embedded store that is closed says so to its downstreams: nothing is forgotten.
func TestEmbeddedEndsInOrder(t *testing.T) {
	o := Config{DataDir: t.TempDir(), Embed: true, Log: slog.New(slog.DiscardHandler)}
	const key = "shaper:{d}:d"
	want := "" // the run of Redis that ended in order
	for range 2 {
		s, err := Open(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if ended := s.Client.HGet(t.Context(), key, "ended").Val(); ended != want {
			t.Errorf("the downstream knows %q as the run that ended in order, want %q", ended, want)
		}
		_, info, _ := strings.Cut(s.Client.Info(t.Context(), "server").Val(), "run_id:")
		want, _, _ = strings.Cut(info, "\r\n")
		if err := s.Client.HSet(t.Context(), key, "rid", want).Err(); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if !s.embedded.Durable() {
			return // no redis-server here: nothing is kept
		}
	}
}

func TestErrors(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, row := range []struct {
		name string
		ctx  context.Context
		url  string
		want error
	}{
		{"no URL", t.Context(), "nonsense", shaper.ErrInvalid},
		{"nobody there", t.Context(), "redis://user:secret@127.0.0.1:1", shaper.ErrStore},
		{"interrupted", cancelled, "redis://127.0.0.1:1", shaper.ErrStore},
	} {
		_, err := Open(row.ctx, Config{URL: row.url, Log: slog.New(slog.DiscardHandler)})
		if !errors.Is(err, row.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %v and no password", row.name, err, row.want)
		}
	}
}

// A store that is opened lazily may be away: its user finds out.
func TestLazy(t *testing.T) {
	s, err := Open(t.Context(), Config{URL: "redis://127.0.0.1:1", Lazy: true, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if s.Client.Ping(t.Context()).Err() == nil {
		t.Error("nobody there, and yet an answer")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
