package embedded

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// What lies in a data directory decides where jobs are sent, and what this process writes to. So all
// of it must have been put there by the user of this process, or by the system's administrator, who
// in turn may use any directory that is its owner's alone.

// trusts tells whether a user trusts what another one owns.
func trusts(user, owner int) bool { return user == owner || user == 0 || owner == 0 }

// checkDir refuses a directory that somebody else owns, or that anybody can change or replace.
func checkDir(dir string) error {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("data directory %s: %s: want one of your own, chmod 700", dir, fmt.Sprintf(format, args...))
	}
	real, err := filepath.Abs(dir)
	if err == nil {
		real, err = filepath.EvalSymlinks(real)
	}
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	info, err := os.Stat(real)
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	switch perm := info.Mode().Perm(); {
	case !info.IsDir():
		return refuse("it is no directory")
	case !ours(info):
		return refuse("another user owns it")
	case perm&0o002 != 0:
		return refuse("everybody may write to it (%#o)", perm)
	}
	for above := filepath.Dir(real); ; above = filepath.Dir(above) {
		info, err := os.Stat(above)
		if err != nil {
			return fmt.Errorf("data directory: %w", err)
		}
		if info.Mode().Perm()&0o002 != 0 && info.Mode()&fs.ModeSticky == 0 {
			return refuse("everybody may replace it, as %s is %#o", above, info.Mode().Perm())
		}
		if above == filepath.Dir(above) {
			return nil
		}
	}
}

// openOwn opens a file of a data directory. Links are not followed, neither symbolic nor hard ones:
// somebody may have put one there before, to have its target read or overwritten.
func openOwn(path string, flag int) (*os.File, error) {
	file, err := os.OpenFile(path, flag|noFollow, 0o600)
	if isLink(err) {
		return nil, fmt.Errorf("%s is a link: want a file, remove it", path)
	}
	if err != nil {
		return nil, err
	}
	if err := checkFile(file); err != nil {
		return nil, errors.Join(fmt.Errorf("%s %w: remove it", path, err), file.Close())
	}
	return file, nil
}

func checkFile(file *os.File) error {
	info, err := file.Stat()
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return errors.New("is no regular file")
	case !ours(info):
		return errors.New("belongs to another user")
	case links(info) > 1:
		return errors.New("has another name elsewhere")
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("can be written by others (%#o)", info.Mode().Perm())
	}
	return nil
}

// readOwn reads such a file, if it is not longer than a file of ours.
func readOwn(path string) ([]byte, error) {
	const most = 1 << 16
	file, err := openOwn(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	raw, err := io.ReadAll(io.LimitReader(file, most+1))
	if err == nil && len(raw) > most {
		err = fmt.Errorf("%s is longer than %d bytes: remove it", path, most)
	}
	return raw, err
}
