package redistest

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// Ports are chosen below the range that the system gives to outgoing connections
// (32768 and up on Linux). A port from that range could be taken while a server is
// down, even by its own client: a client that keeps dialling a closed loopback
// port may be given that very port as its source, and so connect to itself.
const (
	firstPort = 15000
	lastPort  = 31999
)

// freePort returns a port of the range that can be bound right now. Another
// process may take it first, so the caller must verify, and try again.
func freePort() (int, error) {
	var err error
	for range 100 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		var l net.Listener
		if l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("no free port in %d-%d: %w", firstPort, lastPort, err)
}
