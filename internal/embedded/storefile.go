package embedded

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/redisurl"
)

// ErrNoStore says that no store runs in a data directory. Errors that wrap it say
// how to start one.
var ErrNoStore = errors.New("no running store")

// findTimeout bounds how long Find waits for an answer.
const findTimeout = 2 * time.Second

// storeFile is how other commands find a running store.
type storeFile struct {
	PID  int    `json:"pid"` // of the daemon
	URL  string `json:"url"` // may hold a password, so the file is for its owner only
	Kind Kind   `json:"kind"`
}

func storeFilePath(dir string) string { return filepath.Join(dir, "store.json") }

// Find returns the URL of the store that runs in a data directory, after it has
// answered. Without one, or with a file left behind by a daemon that was killed,
// the error wraps ErrNoStore.
func Find(dir string) (url string, err error) {
	if dir == "" {
		return "", errNoDir
	}
	if err := checkDir(dir); errors.Is(err, fs.ErrNotExist) {
		return "", noStore(dir, "")
	} else if err != nil {
		return "", err
	}
	raw, err := readOwn(storeFilePath(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return "", noStore(dir, "")
	} else if err != nil {
		return "", fmt.Errorf("store file: %w", err)
	}
	var file storeFile
	if err := json.Unmarshal(raw, &file); err != nil {
		return "", fmt.Errorf("store file %s: %w: remove it and restart the daemon", storeFilePath(dir), err)
	}
	if err := ping(file.URL); err != nil {
		return "", noStore(dir, fmt.Sprintf(" (the store of process %d does not answer: %v)", file.PID, err))
	}
	return file.URL, nil
}

func noStore(dir, detail string) error {
	return fmt.Errorf("%w in %s%s: start one with `shaper run`, or name a Redis with --redis URL", ErrNoStore, dir, detail)
}

// ping asks once. An answer that is an error, such as LOADING, is an answer.
func ping(url string) error {
	client, err := redisurl.Open(url, redisurl.Config{})
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), findTimeout)
	defer cancel()
	err = client.Ping(ctx).Err()
	if refusal := redis.Error(nil); errors.As(err, &refusal) {
		return nil
	}
	return err
}

// writeStoreFile puts the file in place as a whole: a reader sees all of it or nothing.
func writeStoreFile(dir string, kind Kind, url string) error {
	raw, err := json.Marshal(storeFile{PID: os.Getpid(), URL: url, Kind: kind})
	if err != nil {
		return err
	}
	temp, err := os.CreateTemp(dir, "store-*.tmp") // its mode is 0600
	if err != nil {
		return fmt.Errorf("store file: %w", err)
	}
	_, writeErr := temp.Write(append(raw, '\n'))
	if err := errors.Join(writeErr, temp.Close()); err != nil {
		_ = os.Remove(temp.Name())
		return fmt.Errorf("store file: %w", err)
	}
	if err := os.Rename(temp.Name(), storeFilePath(dir)); err != nil {
		_ = os.Remove(temp.Name())
		return fmt.Errorf("store file: %w", err)
	}
	return nil
}

func removeStoreFile(dir string) error {
	if err := os.Remove(storeFilePath(dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("store file: %w", err)
	}
	return nil
}
