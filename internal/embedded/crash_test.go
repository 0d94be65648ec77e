package embedded

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/jobshaper/jobshaper/internal/redisurl"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
	"github.com/jobshaper/jobshaper/internal/test/testenv"
)

// daemonVar makes this test binary a daemon with a store in the directory it names.
const daemonVar = "EMBEDDED_TEST_DAEMON"

func TestMain(m *testing.M) {
	if dir := os.Getenv(daemonVar); dir != "" {
		daemon(dir)
		return
	}
	redistest.VerifyTestMain(m)
}

// daemon writes a key, says that it is acknowledged, and works until it is killed.
func daemon(dir string) {
	s, err := Start(context.Background(), dir, quiet)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	client, err := redisurl.Open(s.URL(), redisurl.Config{})
	if err == nil {
		err = client.Set(context.Background(), "k", "acknowledged", 0).Err()
	}
	fmt.Println("written", err)
	select {}
}

func TestAKilledDaemonLeavesAllToTheNext(t *testing.T) {
	testenv.Need(t, "redis")
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), daemonVar+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if line != "written <nil>\n" {
		t.Fatalf("daemon: %q, %v", line, err)
	}
	if _, err := Start(t.Context(), dir, quiet); err == nil || !strings.Contains(err.Error(), fmt.Sprint(cmd.Process.Pid)) {
		t.Errorf("Start beside the daemon: %v, want an error with its pid %d", err, cmd.Process.Pid)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed

	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	s, err := Start(ctx, dir, quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	if got, err := open(t, s.URL()).Get(ctx, "k").Result(); got != "acknowledged" {
		t.Errorf("after the daemon was killed: %q, %v", got, err)
	}
}
