//go:build unix

package embedded

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// plant puts something in the place of a file of a data directory, as somebody else may have done.
var plant = map[string]func(t *testing.T, path, victim string){
	"a link": func(t *testing.T, path, victim string) { must(t, os.Symlink(victim, path)) },
	"a link to nothing": func(t *testing.T, path, victim string) {
		must(t, os.Remove(victim))
		must(t, os.Symlink(victim, path))
	},
	"another name": func(t *testing.T, path, victim string) { must(t, os.Link(victim, path)) },
	"a pipe":       func(t *testing.T, path, _ string) { must(t, syscall.Mkfifo(path, 0o600)) },
	"a directory":  func(t *testing.T, path, _ string) { must(t, os.Mkdir(path, 0o700)) },
	"a file that all may write": func(t *testing.T, path, _ string) {
		must(t, os.WriteFile(path, []byte(`{"url":"redis://127.0.0.1:1"}`), 0o600))
		must(t, os.Chmod(path, 0o666))
	},
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// What was planted is neither read nor overwritten, and does not make anybody wait.
func TestPlantedFiles(t *testing.T) {
	const secret = "the victim's"
	for name, put := range plant {
		for file, use := range map[string]func(dir string) error{
			"lock": func(dir string) error {
				l, err := acquire(dir)
				if err == nil {
					l.release()
				}
				return err
			},
			"store.json": func(dir string) error { _, err := Find(dir); return err },
		} {
			t.Run(name+" as "+file, func(t *testing.T) {
				dir, victim := t.TempDir(), filepath.Join(t.TempDir(), "victim")
				must(t, os.WriteFile(victim, []byte(secret), 0o600))
				put(t, filepath.Join(dir, file), victim)
				err := use(dir)
				if err == nil || !strings.Contains(err.Error(), file) || strings.Contains(err.Error(), "answer") {
					t.Errorf("%v, want an error that names the file", err)
				}
				if got, err := os.ReadFile(victim); name != "a link to nothing" && (err != nil || string(got) != secret) {
					t.Errorf("the victim became %q, %v", got, err)
				} else if name == "a link to nothing" && !errors.Is(err, os.ErrNotExist) {
					t.Errorf("the victim was made: %v", err)
				}
			})
		}
	}
}

// A data directory that anybody can change or replace is refused, by who starts a store and by who
// looks for one.
func TestPlantedDirectories(t *testing.T) {
	top := t.TempDir()
	at := func(mode os.FileMode, path ...string) string {
		dir := filepath.Join(append([]string{top}, path...)...)
		must(t, os.MkdirAll(dir, 0o700))
		must(t, os.Chmod(dir, mode))
		return dir
	}
	at(0o777, "open")
	at(0o777|os.ModeSticky, "sticky")
	link := filepath.Join(top, "link")
	must(t, os.Symlink(at(0o700, "real"), link))
	for dir, good := range map[string]bool{
		at(0o700, "private"):        true,
		at(0o700, "sticky", "own"):  true,
		link:                        true,
		at(0o777, "world"):          false,
		at(0o700, "open", "within"): false,
		at(0o700, "open", "a", "b"): false,
	} {
		if err := checkDir(dir); (err == nil) != good || err != nil && !strings.Contains(err.Error(), "chmod 700") {
			t.Errorf("%s: %v, want good %v", dir, err, good)
		}
		if _, err := Find(dir); errors.Is(err, ErrNoStore) != good {
			t.Errorf("looked for a store in %s: %v, want good %v", dir, err, good)
		}
	}
	for _, row := range []struct {
		user, owner int
		want        bool
	}{{1000, 1000, true}, {1000, 0, true}, {0, 1000, true}, {1000, 1001, false}} {
		if got := trusts(row.user, row.owner); got != row.want {
			t.Errorf("user %d trusts %d: %v", row.user, row.owner, got)
		}
	}
}
