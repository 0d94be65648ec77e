package httplimit

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/netip"
	"strings"
)

// KeyFunc says who a request is from. Requests with the same key, even "", share the limits per
// tenant.
type KeyFunc func(*http.Request) string

// maxPlainKey is the length of the longest header value that is used as a key unchanged.
const maxPlainKey = 128

// Header uses the value of a header, such as a tenant's name that a gateway has put there.
// Clients must not be able to choose it. A long value is hashed.
func Header(name string) KeyFunc {
	return func(r *http.Request) string {
		value := r.Header.Get(name)
		if len(value) > maxPlainKey {
			return hashed(value)
		}
		return value
	}
}

// APIKey uses a hash of the credential in a header, such as X-Api-Key or Authorization, so that no
// secret is kept or shown. The scheme Bearer is not part of it.
//
// A client without a credential has the key "". One with a wrong credential has a key of
// its own: authenticate first, or limit addresses as well.
func APIKey(header string) KeyFunc {
	return func(r *http.Request) string {
		value := strings.TrimSpace(r.Header.Get(header))
		if scheme, token, ok := strings.Cut(value, " "); ok && strings.EqualFold(scheme, "Bearer") {
			value = strings.TrimSpace(token)
		}
		if value == "" {
			return ""
		}
		return hashed(value)
	}
}

// hashed is half a SHA-256, in hex.
func hashed(value string) string {
	sum := sha256.Sum256([]byte(value))
	return hex.EncodeToString(sum[:16])
}

// RemoteAddr uses the address of the connection, without its port: right where no proxy is in front
// of the service. All of an IPv6 network with a prefix of 64 bits is one client, see
// AddrConfig.V6Bits.
func RemoteAddr(r *http.Request) string { return AddrConfig{}.of(r) }

// AddrConfig says how ClientAddr finds a client.
type AddrConfig struct {
	// Trusted are the networks of the proxies in front of the service. What others write into
	// X-Forwarded-For is not believed. Empty: the header is not read.
	Trusted []netip.Prefix

	// V6Bits makes one key of an IPv6 network with a prefix of that many bits, since a client may
	// use any address of its network. 0 means 64, which most get; 128 tells single addresses apart.
	V6Bits int
}

// ClientAddr uses the address of the client, which may come through trusted proxies.
//
// The hops are the addresses in X-Forwarded-For and then the connection's. From the right, the
// first that is not trusted is the client: it is what a trusted proxy saw, and anything left of it
// is what the client claims. If all are trusted it is the leftmost. A hop that is not an address
// ends the search at the one to its right.
func ClientAddr(cfg AddrConfig) KeyFunc {
	return cfg.of
}

func (cfg AddrConfig) of(r *http.Request) string {
	addr, ok := parseHop(r.RemoteAddr)
	if !ok {
		return r.RemoteAddr // a Unix socket, say
	}
	if cfg.trusts(addr) {
		addr = cfg.behind(addr, r.Header.Values("X-Forwarded-For"))
	}
	return cfg.key(addr)
}

// behind returns who came through the trusted proxy addr.
func (cfg AddrConfig) behind(addr netip.Addr, lines []string) netip.Addr {
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
		if addr = next; !cfg.trusts(addr) {
			return addr
		}
	}
	return addr
}

func (cfg AddrConfig) trusts(addr netip.Addr) bool {
	for _, network := range cfg.Trusted {
		if network.Contains(addr) {
			return true
		}
	}
	return false
}

func (cfg AddrConfig) key(addr netip.Addr) string {
	if bits := cmp.Or(cfg.V6Bits, 64); addr.Is6() && bits > 0 && bits < 128 {
		if network, err := addr.Prefix(bits); err == nil {
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
