package redisproc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// ErrNotOurs is returned by Ready when some other server answers at the address.
var ErrNotOurs = errors.New("another redis-server answers at this address")

// pollEvery is the pause between two attempts to reach a server that is not up yet.
const pollEvery = 5 * time.Millisecond

// Ready waits until the child answers at the address ("tcp" or "unix") and has
// loaded its data. It compares the process id that the server reports, because a
// port may be taken by another server between choosing and binding it; that is
// ErrNotOurs. password is empty where the server asks for none.
//
// If the child ends, Ready returns early, with the child's last words.
func (p *Process) Ready(ctx context.Context, network, addr, password string) error {
	for {
		pid, err := ask(ctx, network, addr, password)
		switch {
		case err == nil && pid == p.PID():
			return nil
		case err == nil:
			return fmt.Errorf("%s: %w (pid %d, ours is %d)", addr, ErrNotOurs, pid, p.PID())
		}
		select {
		case <-p.done:
			return fmt.Errorf("redis-server ended before it was ready: %w", p.ended())
		case <-ctx.Done():
			return fmt.Errorf("redis-server at %s not ready: %w (last answer: %w)", addr, ctx.Err(), err)
		case <-time.After(pollEvery):
		}
	}
}

// ended is Err for a child that should not have ended, however cleanly.
func (p *Process) ended() error {
	if err := p.Err(); err != nil {
		return err
	}
	return fmt.Errorf("redis-server (pid %d): exit status 0%s", p.PID(), p.log.suffix())
}

// ask connects and returns the process id of the server that answers. It fails
// while the server is still loading. The few words of protocol are written out
// because a client library retries, pools and logs, all of which gets in the way here.
func ask(ctx context.Context, network, addr, password string) (int, error) {
	dialer := net.Dialer{Timeout: time.Second}
	conn, err := dialer.DialContext(ctx, network, addr)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return 0, err
	}
	reader := bufio.NewReader(conn)
	if password != "" {
		request := fmt.Sprintf("*2\r\n$4\r\nAUTH\r\n$%d\r\n%s\r\n", len(password), password)
		if _, err := roundTrip(conn, reader, request); err != nil {
			return 0, err
		}
	}
	if _, err := roundTrip(conn, reader, "PING\r\n"); err != nil {
		return 0, err
	}
	header, err := roundTrip(conn, reader, "INFO server\r\n")
	if err != nil {
		return 0, err
	}
	size, err := strconv.Atoi(strings.TrimPrefix(header, "$"))
	if err != nil {
		return 0, fmt.Errorf("unexpected reply %q to INFO", header)
	}
	return processID(io.LimitReader(reader, int64(size)))
}

// roundTrip sends a request and returns the first line of the reply.
func roundTrip(conn net.Conn, reader *bufio.Reader, request string) (string, error) {
	if _, err := io.WriteString(conn, request); err != nil {
		return "", err
	}
	line, err := reader.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimRight(line, "\r\n")
	if reason, failed := strings.CutPrefix(line, "-"); failed {
		return "", errors.New(reason)
	}
	return line, nil
}

// processID finds the process id in the text of INFO server.
func processID(info io.Reader) (int, error) {
	lines := bufio.NewScanner(info)
	for lines.Scan() {
		if value, found := strings.CutPrefix(lines.Text(), "process_id:"); found {
			return strconv.Atoi(strings.TrimSpace(value))
		}
	}
	return 0, errors.New("INFO server has no process_id")
}
