package policing

import (
	"net/http"
	"net/netip"
	"strings"
)

// AddrOptions are how ClientAddr finds a client.
type AddrOptions struct {
	// Trusted are the networks of the proxies before the service. What others write into
	// X-Forwarded-For is not believed. Empty: the header is not read.
	Trusted []netip.Prefix

	// V6Bits makes one key of an IPv6 network of that size, since a client may use any
	// address of its own: 64 is what most get. 0 tells single addresses apart.
	V6Bits int
}

// ClientAddr takes the address of the client, which may come through trusted proxies.
//
// The hops are the addresses in X-Forwarded-For and then the connection's. From the right,
// the first that is not trusted is the client: it is what a trusted proxy saw, and anything
// left of it is what the client claims. If all are trusted it is the leftmost. A hop that
// is no address ends the search at the one to the right of it.
func ClientAddr(o AddrOptions) KeyFunc {
	return func(r *http.Request) string {
		addr, ok := parseHop(r.RemoteAddr)
		if !ok {
			return r.RemoteAddr // a Unix socket, say
		}
		if o.trusts(addr) {
			addr = o.behind(addr, r.Header.Values("X-Forwarded-For"))
		}
		return o.key(addr)
	}
}

// behind returns who came through the trusted proxy addr.
func (o AddrOptions) behind(addr netip.Addr, lines []string) netip.Addr {
	rest := strings.Join(lines, ",") // RFC 9110, 5.3: several lines are one list
	for rest != "" {
		hop := rest
		if i := strings.LastIndexByte(rest, ','); i >= 0 {
			rest, hop = rest[:i], rest[i+1:]
		} else {
			rest = ""
		}
		next, ok := parseHop(strings.TrimSpace(hop))
		if !ok {
			return addr
		}
		if addr = next; !o.trusts(addr) {
			return addr
		}
	}
	return addr
}

func (o AddrOptions) trusts(addr netip.Addr) bool {
	for _, network := range o.Trusted {
		if network.Contains(addr) {
			return true
		}
	}
	return false
}

func (o AddrOptions) key(addr netip.Addr) string {
	if addr.Is6() && o.V6Bits > 0 && o.V6Bits < 128 {
		if network, err := addr.Prefix(o.V6Bits); err == nil {
			return network.String()
		}
	}
	return addr.String()
}

// parseHop reads an address, with or without port or brackets. An IPv4 address in an
// IPv6 one is the IPv4 address; a zone is dropped.
func parseHop(s string) (netip.Addr, bool) {
	addr, err := netip.ParseAddr(s)
	if err != nil {
		if port, err2 := netip.ParseAddrPort(s); err2 == nil {
			addr, err = port.Addr(), nil
		} else if inner, ok := strings.CutPrefix(s, "["); ok && strings.HasSuffix(inner, "]") {
			addr, err = netip.ParseAddr(strings.TrimSuffix(inner, "]"))
		}
	}
	return addr.Unmap().WithZone(""), err == nil
}
