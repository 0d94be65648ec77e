package embedded

import (
	"context"
	"fmt"
	"net"
	"time"
)

// endOrphan ends a redis-server that still serves our socket. We hold the lock, so
// that server has lost its daemon: where the system cannot kill it with its parent
// it lives on, and two servers would ruin their common append-only file.
func endOrphan(ctx context.Context, socket string) error {
	var dialer net.Dialer
	for {
		conn, err := dialer.DialContext(ctx, "unix", socket)
		if err != nil {
			if ctx.Err() != nil {
				return fmt.Errorf("redis-server left behind at %s does not end: %w: end it by hand", socket, ctx.Err())
			}
			return nil // nobody is there
		}
		// A server that obeys ends without an answer; until then each round asks again.
		_ = conn.SetDeadline(time.Now().Add(time.Second))
		if _, err := conn.Write([]byte("SHUTDOWN\r\n")); err == nil {
			_, _ = conn.Read(make([]byte, 256))
		}
		conn.Close()
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}
