package embedded

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestFind(t *testing.T) {
	hideRedis(t)
	dir := t.TempDir()
	wantNone := func(when, detail string) {
		t.Helper()
		_, err := Find(dir)
		if !errors.Is(err, ErrNoStore) || !strings.Contains(err.Error(), "shaper run") || !strings.Contains(err.Error(), detail) {
			t.Errorf("%s: %v, want ErrNoStore with the way out and %q", when, err, detail)
		}
	}
	wantNone("nothing there", dir)
	s := start(t, dir)
	if url, err := Find(dir); url != s.URL() || err != nil {
		t.Errorf("running: %q, %v; want %q", url, err, s.URL())
	}
	left, err := os.ReadFile(storeFilePath(dir))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	wantNone("stopped", dir)

	// As a killed daemon would have left it.
	if err := os.WriteFile(storeFilePath(dir), left, 0o600); err != nil {
		t.Fatal(err)
	}
	wantNone("left behind", fmt.Sprintf("process %d does not answer", os.Getpid()))
	if err := os.WriteFile(storeFilePath(dir), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Find(dir); err == nil || !strings.Contains(err.Error(), "store.json") {
		t.Errorf("broken file: %v, want an error that names it", err)
	}
}
