package embedded

import (
	"bytes"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jobshaper/jobshaper/internal/test/testenv"
)

func TestLongDirectory(t *testing.T) {
	testenv.Need(t, "redis")
	t.Setenv("TMPDIR", "/tmp") // the socket goes to a short directory there
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 30), "a b")
	s := start(t, dir)
	socket := s.backend.(*server).socket
	t.Cleanup(func() { os.RemoveAll(filepath.Dir(socket)) })
	if len(socket) > maxSocketPath || strings.HasPrefix(socket, dir) {
		t.Errorf("socket %s, want a short path outside of %s", socket, dir)
	}
	if url, err := Find(dir); url != s.URL() {
		t.Errorf("Find = %q, %v; want %q", url, err, s.URL())
	}
	if again, err := socketPath(dir); again != socket {
		t.Errorf("second socketPath = %q, %v; want the same %q", again, err, socket)
	}
	if err := os.Chmod(filepath.Dir(socket), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := socketPath(dir); err == nil || !strings.Contains(err.Error(), "mode 700") {
		t.Errorf("socketPath in a directory open to others: %v, want an error", err)
	}
}

func TestPrepareDir(t *testing.T) {
	var logged bytes.Buffer
	log := slog.New(slog.NewTextHandler(&logged, nil))
	for _, row := range []struct {
		mode     os.FileMode
		err, log string
	}{
		{0o700, "", ""},
		{0o755, "", "chmod 700"},
		{0o777, "chmod 700", ""},
	} {
		logged.Reset()
		dir := t.TempDir()
		if err := os.Chmod(dir, row.mode); err != nil {
			t.Fatal(err)
		}
		_, err := prepareDir(dir, log)
		if (err == nil) != (row.err == "") || err != nil && !strings.Contains(err.Error(), row.err) {
			t.Errorf("%v: error %v, want %q", row.mode, err, row.err)
		}
		if got := logged.String(); (got == "") != (row.log == "") || !strings.Contains(got, row.log) {
			t.Errorf("%v: logged %q, want %q", row.mode, got, row.log)
		}
	}
}

func TestDefaultDir(t *testing.T) {
	u, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct{ ours, xdg, home, want string }{
		{"/ours", "/xdg", "/home/ann", "/ours"},
		{"", "/xdg", "/home/ann", "/xdg/jobshaper"},
		{"", "relative", "/home/ann", "/home/ann/.local/share/jobshaper"},
		{"", "", "/home/ann", "/home/ann/.local/share/jobshaper"},
		{"", "", "", u.HomeDir + "/.local/share/jobshaper"}, // not among the temporary files, where anybody may have made it
		{"", "", "relative", u.HomeDir + "/.local/share/jobshaper"},
	} {
		t.Setenv(DirVar, row.ours)
		t.Setenv("XDG_DATA_HOME", row.xdg)
		t.Setenv("HOME", row.home)
		if got := DefaultDir(); got != row.want {
			t.Errorf("%+v: %s", row, got)
		}
	}
}
