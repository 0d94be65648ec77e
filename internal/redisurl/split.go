package redisurl

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// parts is a URL cut into its pieces. net/url cannot do that, since it takes no list
// of hosts with ports.
type parts struct {
	scheme   string
	userinfo string // still encoded, with its final @; or empty
	hosts    string // separated by commas
	path     string // with its leading slash
	query    url.Values
}

// split cuts a URL into its pieces and refuses what is probably a password that was
// not percent-encoded: taken for a host, path or option, it would end up in messages.
func split(raw string) (parts, error) {
	scheme, rest, found := strings.Cut(raw, "://")
	if !found {
		if raw == "" || strings.ContainsAny(raw, "@/ ") {
			return parts{}, fmt.Errorf("no scheme: want %s", schemes)
		}
		return parts{}, fmt.Errorf("no scheme: want redis://%s, or another of %s", raw, schemes)
	}
	p := parts{scheme: strings.ToLower(scheme)}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	authority, tail := rest[:end], rest[end:]
	if at := strings.LastIndex(authority, "@"); at >= 0 {
		p.userinfo, p.hosts = authority[:at+1], authority[at+1:]
	} else {
		p.hosts = authority
	}
	socket := p.scheme == "unix" || p.scheme == "redis-socket" // a file's name may hold an @
	if strings.Contains(tail, "#") || (strings.Contains(tail, "@") && !(socket && p.hosts == "")) {
		return parts{}, errors.New("misplaced / ? # or @: want a password and options percent-encoded, %2F %3F %23 %40")
	}
	if _, err := url.Parse("redis://" + p.userinfo + "host"); err != nil {
		return parts{}, errors.New("user or password: want it percent-encoded")
	}
	path, query, _ := strings.Cut(tail, "?")
	p.path = path
	var err error
	if p.query, err = url.ParseQuery(query); err != nil {
		return parts{}, errors.New("options: want name=value&…, percent-encoded")
	}
	return p, nil
}

// url puts the pieces together again, for one host.
func (p parts) url(host, path string) string {
	raw := p.scheme + "://" + p.userinfo + host + path
	if len(p.query) > 0 {
		raw += "?" + p.query.Encode()
	}
	return raw
}

// plainScheme is p with the scheme that go-redis' parsers of lists want.
func (p parts) plainScheme() parts {
	p.scheme, _, _ = strings.Cut(p.scheme, "-")
	return p
}

// hostList splits a list at its commas and gives a port to those without one.
func hostList(list, defaultPort string) ([]string, error) {
	hosts := strings.Split(list, ",")
	for i, host := range hosts {
		name, port, err := net.SplitHostPort(host)
		if err != nil { // there is no port
			name, port = strings.Trim(host, "[]"), defaultPort
			if strings.Contains(name, ":") && !strings.HasPrefix(host, "[") {
				return nil, fmt.Errorf("host %q: want host:port, or [address]:port for IPv6", host)
			}
		}
		if name == "" {
			return nil, fmt.Errorf("host %q: want a host name or address", host)
		}
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return nil, fmt.Errorf("port %q: want 1 to 65535", port)
		}
		hosts[i] = net.JoinHostPort(name, port)
	}
	return slices.Compact(hosts), nil
}
