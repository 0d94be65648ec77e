// Package ownredis gives a measurement a redis-server of its own.
package ownredis

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/redis/go-redis/v9"
)

// With runs f against a fresh redis-server with an append-only file, as it is run in production.
func With(f func(addr string, rdb *redis.Client) error) error {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	addr := l.Addr().String()
	_, port, _ := net.SplitHostPort(addr)
	l.Close()
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command("redis-server", "--port", port, "--bind", "127.0.0.1", "--dir", dir, "--appendonly", "yes", "--save", "")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	rdb := redis.NewClient(&redis.Options{Addr: addr, PoolSize: 64, DisableIdentity: true, ContextTimeoutEnabled: true})
	defer rdb.Close()
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		info, err := rdb.InfoMap(context.Background(), "server").Result()
		if err == nil && info["Server"]["process_id"] == fmt.Sprint(cmd.Process.Pid) {
			break
		}
		if time.Since(begun) > 10*time.Second {
			return fmt.Errorf("redis-server did not start: %v", err)
		}
	}
	return f(addr, rdb)
}
