package redisurl

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// schemes lists what a URL may begin with, for messages.
const schemes = "redis://, rediss://, unix://, redis-sentinel:// or redis-cluster://"

// readReplicas are go-redis' options that send reads to servers other than the
// primary. Our scripts and reads must see the latest write.
var readReplicas = []string{"read_only", "replica_only", "route_by_latency", "route_randomly", "use_disconnected_replicas"}

// parse returns *redis.Options, *redis.FailoverOptions or *redis.ClusterOptions.
func parse(raw string) (any, error) {
	p, err := split(raw)
	var opts any
	if err == nil {
		opts, err = p.options()
	}
	if err != nil {
		return nil, fmt.Errorf("redis URL %q: %w", Redact(raw), err)
	}
	return opts, nil
}

// options turns the pieces into go-redis' options. Its errors repeat no part of
// the URL that may hold a password: split has refused misplaced ones.
func (p parts) options() (any, error) {
	for _, name := range readReplicas {
		if p.query.Has(name) {
			return nil, fmt.Errorf("option %s: want none, jobs are read from the primary only", name)
		}
	}
	switch p.scheme {
	case "unix", "redis-socket":
		return p.socket()
	case "redis", "rediss":
		return p.single()
	case "redis-sentinel", "rediss-sentinel":
		return p.sentinel()
	case "redis-cluster", "rediss-cluster":
		return p.cluster()
	default:
		return nil, fmt.Errorf("scheme %q: want %s", p.scheme, schemes)
	}
}

func (p parts) socket() (*redis.Options, error) {
	if p.hosts != "" {
		return nil, fmt.Errorf("path %q: want an absolute path, unix:///run/redis.sock", p.hosts+p.path)
	}
	p.scheme = "unix"
	opts, err := redis.ParseURL(p.url("", p.path))
	return opts, plain(err)
}

func (p parts) single() (*redis.Options, error) {
	hosts, err := hostList(p.hosts, "6379")
	if err != nil {
		return nil, err
	}
	if len(hosts) > 1 {
		return nil, fmt.Errorf("host %q: want one host, or redis-cluster:// or redis-sentinel:// for a list", p.hosts)
	}
	if err := p.checkDB(); err != nil {
		return nil, err
	}
	opts, err := redis.ParseURL(p.url(hosts[0], p.path))
	return opts, plain(err)
}

func (p parts) sentinel() (*redis.FailoverOptions, error) {
	hosts, err := hostList(p.hosts, "26379")
	if err != nil {
		return nil, err
	}
	if err := p.checkDB(); err != nil {
		return nil, err
	}
	if p.query.Get("master") == "" {
		return nil, errors.New(`option master "": want the name of the master as the sentinels know it, ?master=mymaster`)
	}
	p.query["master_name"] = p.query["master"]
	p.query.Del("master")
	p.query["addr"] = append(hosts[1:], p.query["addr"]...)
	opts, err := redis.ParseFailoverURL(p.plainScheme().url(hosts[0], p.path))
	if err != nil {
		return nil, plain(err)
	}
	if opts.TLSConfig != nil {
		opts.TLSConfig.ServerName = "" // each host is checked by its own name
	}
	return opts, nil
}

func (p parts) cluster() (*redis.ClusterOptions, error) {
	hosts, err := hostList(p.hosts, "6379")
	if err != nil {
		return nil, err
	}
	if strings.Trim(p.path, "/0") != "" {
		return nil, fmt.Errorf("database %q: want none, a cluster has only database 0", strings.Trim(p.path, "/"))
	}
	p.query["addr"] = append(hosts[1:], p.query["addr"]...)
	opts, err := redis.ParseClusterURL(p.plainScheme().url(hosts[0], ""))
	if err != nil {
		return nil, plain(err)
	}
	if opts.TLSConfig != nil {
		opts.TLSConfig.ServerName = "" // each node is checked by its own name
		opts.TLSConfig.MinVersion = tls.VersionTLS12
	}
	return opts, nil
}

// checkDB wants the path to be a number, or empty.
func (p parts) checkDB() error {
	db := strings.Trim(p.path, "/")
	if db == "" {
		return nil
	}
	if n, err := strconv.Atoi(db); err != nil || n < 0 {
		return fmt.Errorf("database %q: want a number, such as /0", db)
	}
	return nil
}

// plain strips the library's own prefix from an error. An error of net/url quotes
// the whole URL, with the password in it, so none of its text is kept.
func plain(err error) error {
	if err == nil {
		return nil
	}
	if malformed := (*url.Error)(nil); errors.As(err, &malformed) {
		return errors.New("host or path: want no blanks or special characters, or percent-encoded ones")
	}
	return errors.New(strings.TrimPrefix(err.Error(), "redis: "))
}
