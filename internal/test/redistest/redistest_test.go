package redistest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/test/testenv"
)

func TestMain(m *testing.M) {
	testenv.Abreast(4)
	VerifyTestMain(m)
}

func TestAOFSurvivesAKill(t *testing.T) {
	ctx := t.Context()
	s := Start(t, AOF(), Acknowledged())
	client := s.Client()
	for i := range 100 {
		if err := client.Set(ctx, fmt.Sprintf("k%d", i), i, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	addr, pid := s.Addr(), s.PID()
	s.Kill()
	s.Restart()
	if s.Addr() != addr || s.PID() == pid {
		t.Errorf("after Restart: %s pid %d, want the same address %s and another pid than %d", s.Addr(), s.PID(), addr, pid)
	}
	if n, err := client.DBSize(ctx).Result(); n != 100 || err != nil {
		t.Errorf("DBSIZE after kill and restart = %d, %v; want all 100 keys", n, err)
	}
}

func TestWithoutAOFAKillLosesAll(t *testing.T) {
	ctx := t.Context()
	s := Start(t)
	client := s.Client()
	if err := client.Set(ctx, "k", 1, 0).Err(); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	s.Restart()
	if n, err := client.DBSize(ctx).Result(); n != 0 || err != nil {
		t.Errorf("DBSIZE after kill and restart = %d, %v; want an empty store", n, err)
	}
}

func TestPauseAnswersNothing(t *testing.T) {
	s := Start(t)
	client := s.Client()
	s.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := client.Ping(ctx).Err(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("PING while paused = %v, want a deadline exceeded", err)
	}
	s.Continue()
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Errorf("PING after Continue = %v", err)
	}
}

func TestPasswordAndArgs(t *testing.T) {
	ctx := t.Context()
	s := Start(t, Password("open/ses@me"), Args("--maxmemory", "100mb"))
	if got, err := s.Client().ConfigGet(ctx, "maxmemory").Result(); err != nil || got["maxmemory"] != "104857600" {
		t.Errorf("CONFIG GET maxmemory = %v, %v; want 104857600", got, err)
	}
	opts, err := redis.ParseURL(s.URL())
	if err != nil || opts.Password != "open/ses@me" {
		t.Errorf("URL %q: password %q, %v; want open/ses@me", s.URL(), opts.Password, err)
	}
}

func TestTheServerEndsWithItsTest(t *testing.T) {
	var pid int
	t.Run("inner", func(t *testing.T) {
		s := Start(t)
		pid = s.PID()
		s.Kill()
		s.Restart()
		pid = s.PID()
	})
	if _, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); pid != 0 && err == nil {
		t.Errorf("redis-server (pid %d) outlived its test", pid)
	}
}

func TestPortTakenByAnother(t *testing.T) {
	taken := Start(t)
	s := &Server{t: t, path: taken.path, cfg: newConfig(t, nil), port: taken.port}
	err := s.startOnce()
	if err == nil {
		s.Kill()
		t.Fatal("a second server started on a port that is in use")
	}
	if !strings.Contains(err.Error(), "another redis-server") && !strings.Contains(err.Error(), "in use") {
		t.Errorf("error %q does not say that the port is taken", err)
	}
}

func TestOpenWithoutRedis(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("JOBSHAPER_REQUIRE", "")
	if err := Open(t).Ping(t.Context()).Err(); err != nil {
		t.Errorf("PING on the fallback = %v", err)
	}
}
