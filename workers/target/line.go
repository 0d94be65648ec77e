package target

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// line is one connection to an HTTP target, with TLS where it has that, on which requests are sent
// one after the other.
type line struct {
	*http.ClientConn
	conn *notedConn
	used time.Time       // when it was last known to be good
	open context.Context // ends when either side has closed the connection
}

// maxIdle is how long a line is trusted that nobody uses. It is below the 5s after which common
// servers close an idle connection: a POST that crosses with such a close fails, and cannot be
// repeated safely.
const maxIdle = 4 * time.Second

// good reports whether a request may be sent on l, which may be nil.
func (l *line) good() bool {
	return l != nil && l.Err() == nil && l.Available() > 0 && time.Since(l.used) < maxIdle
}

// touch says that l is good.
func (l *line) touch() { l.used = time.Now() }

// notedKey is where the context of a dial says who wants to know the connection.
type notedKey struct{}

// dialLine connects to the target of t.
func (t *httpTarget) dialLine(ctx context.Context) (*line, error) {
	l := &line{}
	cc, err := t.transport.NewClientConn(context.WithValue(ctx, notedKey{}, &l.conn), t.url.Scheme, t.address)
	if err != nil {
		return nil, err
	}
	open, end := context.WithCancel(context.Background())
	l.ClientConn, l.used, l.open = cc, time.Now(), open
	cc.SetStateHook(func(cc *http.ClientConn) {
		if cc.Err() != nil {
			end()
		}
	})
	return l, nil
}

// notedConn notes when the first byte of a request is handed to the system.
type notedConn struct {
	net.Conn
	first atomic.Pointer[time.Time] // of the write that is expected, or was made
}

// expect says that the next write is a request's first.
func (c *notedConn) expect() { c.first.Store(nil) }

// sent is when that write began; zero if it has not.
func (c *notedConn) sent() time.Time {
	if at := c.first.Load(); at != nil {
		return *at
	}
	return time.Time{}
}

func (c *notedConn) Write(b []byte) (int, error) {
	if c.first.Load() == nil {
		now := time.Now()
		c.first.Store(&now)
	}
	return c.Conn.Write(b)
}

// noted makes a dial function note what its connections send.
func noted(dial func(ctx context.Context, network, addr string) (net.Conn, error)) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		c := &notedConn{Conn: conn}
		if want, ok := ctx.Value(notedKey{}).(**notedConn); ok {
			*want = c
		}
		return c, nil
	}
}
