package redisurl

import (
	"crypto/tls"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// seen is what the tests compare of the three kinds of options.
type seen struct {
	kind       string
	network    string
	addrs      string
	user, pass string
	db         int
	tls        bool
	master     string // and the password for the sentinels
	guard      string
}

func look(t *testing.T, opts any) seen {
	t.Helper()
	var s seen
	var conf *tls.Config
	switch o := opts.(type) {
	case *redis.Options:
		s, conf = seen{kind: "single", network: o.Network, addrs: o.Addr, user: o.Username, pass: o.Password, db: o.DB}, o.TLSConfig
	case *redis.FailoverOptions:
		s, conf = seen{kind: "sentinel", addrs: strings.Join(o.SentinelAddrs, " "), user: o.Username, pass: o.Password,
			db: o.DB, master: o.MasterName, guard: o.SentinelPassword}, o.TLSConfig
	case *redis.ClusterOptions:
		s, conf = seen{kind: "cluster", addrs: strings.Join(o.Addrs, " "), user: o.Username, pass: o.Password}, o.TLSConfig
	default:
		t.Fatalf("parse returned a %T", opts)
	}
	if conf != nil {
		s.tls = true
		if conf.MinVersion != tls.VersionTLS12 || conf.InsecureSkipVerify {
			t.Errorf("TLS from version %#x, verification off: %v; want 1.2 and on", conf.MinVersion, conf.InsecureSkipVerify)
		}
	}
	return s
}

func TestParse(t *testing.T) {
	for _, row := range []struct {
		url  string
		want seen
	}{
		{"redis://h", seen{kind: "single", network: "tcp", addrs: "h:6379"}},
		{"redis://h:7000/3", seen{kind: "single", network: "tcp", addrs: "h:7000", db: 3}},
		{"redis://[::1]:7000", seen{kind: "single", network: "tcp", addrs: "[::1]:7000"}},
		{"redis://[::1]", seen{kind: "single", network: "tcp", addrs: "[::1]:6379"}},
		{"REDIS://ann:p%40ss%2F@h", seen{kind: "single", network: "tcp", addrs: "h:6379", user: "ann", pass: "p@ss/"}},
		{"redis://:p@ss@h", seen{kind: "single", network: "tcp", addrs: "h:6379", pass: "p@ss"}},
		{"rediss://h", seen{kind: "single", network: "tcp", addrs: "h:6379", tls: true}},
		{"unix:///run/r.sock?db=2", seen{kind: "single", network: "unix", addrs: "/run/r.sock", db: 2}},
		{"unix://:pw@/run/a@b.sock", seen{kind: "single", network: "unix", addrs: "/run/a@b.sock", pass: "pw"}},
		{"redis-socket:///run/r.sock", seen{kind: "single", network: "unix", addrs: "/run/r.sock"}},
		// As asynq reads it: the password is for the sentinels.
		{"redis-sentinel://:pw@a:5000,b:5001,c/2?master=m",
			seen{kind: "sentinel", addrs: "a:5000 b:5001 c:26379", db: 2, master: "m", guard: "pw"}},
		{"redis-sentinel://a?master=m&username=ann&password=pw",
			seen{kind: "sentinel", addrs: "a:26379", master: "m", user: "ann", pass: "pw"}},
		{"rediss-sentinel://a,b?master=m", seen{kind: "sentinel", addrs: "a:26379 b:26379", master: "m", tls: true}},
		{"redis-cluster://ann:pw@a:7000,b:7001", seen{kind: "cluster", addrs: "a:7000 b:7001", user: "ann", pass: "pw"}},
		{"redis-cluster://a:7000/0?addr=b:7001&addr=c:7002", seen{kind: "cluster", addrs: "a:7000 b:7001 c:7002"}},
		{"rediss-cluster://a,b", seen{kind: "cluster", addrs: "a:6379 b:6379", tls: true}},
	} {
		opts, err := parse(row.url)
		if err != nil {
			t.Errorf("%s: %v", row.url, err)
		} else if got := look(t, opts); got != row.want {
			t.Errorf("%s:\n got %+v\nwant %+v", row.url, got, row.want)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for _, row := range []struct{ url, want string }{
		{"", "no scheme: want redis://"},
		{"localhost:6379", "want redis://localhost:6379"},
		{"http://h", `scheme "http": want redis://`},
		{"redis://", `host "": want a host name`},
		{"redis://h:seven", `port "seven": want 1 to 65535`},
		{"redis://h:70000", `port "70000"`},
		{"redis://::1", `host "::1": want host:port, or [address]:port`},
		{"redis://h/jobs", `database "jobs": want a number, such as /0`},
		{"redis://h/-1", `database "-1"`},
		{"redis://a,b", "redis-cluster:// or redis-sentinel:// for a list"},
		{"redis://h?pool=3", "unexpected option: pool"},
		{"redis://h?dial_timeout=soon", "dial_timeout"},
		{"redis://ho st", "percent-encoded"},
		{"unix://run/r.sock", "want an absolute path"},
		{"redis-sentinel://a,b", "?master=mymaster"},
		{"redis-cluster://a/1", `database "1": want none`},
		{"redis-cluster://a?read_only=true", "option read_only: want none"},
		{"redis-sentinel://a?master=m&replica_only=true", "option replica_only: want none"},
	} {
		_, err := parse(row.url)
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%q: error %v, want %q in it", row.url, err, row.want)
		}
	}
}

// A password must not show, however the URL around it is broken.
func TestErrorsHoldNoPassword(t *testing.T) {
	const secret = "hunter2"
	for _, url := range []string{
		"redis://:hunter2@h/jobs",
		"redis://ann:hunter2@h:port",
		"redis://hunter2@h:port",
		"redis://:hunter2/hunter2@h",    // a slash, not encoded
		"redis://:1/hunter2@h",          // so that the rest looks like a database
		"redis://:1?hunter2@h",          // or like an option
		"redis://:1#hunter2@h",          // or like a fragment
		"redis://:hunter2%zz@h",         // not an encoding
		"redis://:hunter2 @h",           // a blank
		"redis://:hunter2@ho st",        // an error that net/url would quote in full
		"redis:/:hunter2@h",             // a slash too few
		"http://ann:hunter2@h",          // another scheme
		":hunter2@h",                    // no scheme
		"unix://:hunter2@run/r.sock",    // no absolute path
		"unix://:1/hunter2@/run/r.sock", // a slash, not encoded
		"redis-sentinel://:hunter2@a,b",
		"redis-sentinel://a/x?master=m&password=hunter2",
		"redis-sentinel://a?master=m&sentinel_password=hunter2",
		"redis-cluster://:hunter2@a/9",
	} {
		_, err := Open(url, Config{})
		if err == nil {
			t.Errorf("%s: no error", url)
		} else if strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the error tells the password: %v", url, err)
		}
	}
}

func TestRedact(t *testing.T) {
	for _, row := range []struct{ url, want string }{
		{"redis://h:1/0", "redis://h:1/0"},
		{"redis://ann:pw@h:1/0", "redis://ann:***@h:1/0"},
		{"redis://:pw@h", "redis://:***@h"},
		{"redis://pw@h", "redis://***@h"},
		{"redis://:p@s/s@h", "redis://:***@h"},
		{"redis-sentinel://a,b?master=m&password=pw&db=1", "redis-sentinel://a,b?master=m&password=***&db=1"},
		{"redis-sentinel://a?Sentinel_Password=pw", "redis-sentinel://a?Sentinel_Password=***"},
		{"unix:///run/r.sock", "unix:///run/r.sock"},
		{"ann:pw@h", "ann:***@h"},
		{"", ""},
	} {
		if got := Redact(row.url); got != row.want {
			t.Errorf("Redact(%q) = %q, want %q", row.url, got, row.want)
		}
	}
}

func TestDefaultsAndOverrides(t *testing.T) {
	open := func(url string) *redis.Options {
		client, err := Open(url, Config{Name: "shaper", PoolSize: 7})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close() })
		return client.(*redis.Client).Options()
	}
	type set struct {
		name              string
		pool              int
		dial, read, write time.Duration
	}
	of := func(o *redis.Options) set {
		return set{o.ClientName, o.PoolSize, o.DialTimeout, o.ReadTimeout, o.WriteTimeout}
	}
	if got, want := of(open("redis://h")), (set{"shaper", 7, DialTimeout, ReadTimeout, ReadTimeout}); got != want {
		t.Errorf("defaults: got %+v, want %+v", got, want)
	}
	got := of(open("redis://h?client_name=x&pool_size=3&dial_timeout=1s&read_timeout=9s&write_timeout=8s"))
	if want := (set{"x", 3, time.Second, 9 * time.Second, 8 * time.Second}); got != want {
		t.Errorf("overridden: got %+v, want %+v", got, want)
	}

	cluster, err := Open("redis-cluster://h", Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	if got := cluster.(*redis.ClusterClient).Options().ClusterStateReloadInterval; got != clusterReload {
		t.Errorf("ClusterStateReloadInterval = %v, want %v", got, clusterReload)
	}
	sentinel, err := Open("redis-sentinel://h?master=m", Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer sentinel.Close()
	if got := reflect.TypeOf(sentinel); got != reflect.TypeFor[*redis.Client]() {
		t.Errorf("a sentinel URL opens a %v, want a *redis.Client", got)
	}
}

func FuzzRedactHidesWhatParseRefuses(f *testing.F) {
	f.Add("redis://:", "@h/0")
	f.Add("redis://ann:/?#", "@h,b?master=m")
	f.Fuzz(func(t *testing.T, before, after string) {
		const secret = "hunter2"
		if strings.Contains(before+after, secret) || !strings.HasSuffix(before, ":") || !strings.Contains(after, "@") {
			return // no secret would be where a password is
		}
		if _, err := parse(before + secret + after); err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("%q: the error tells the password: %v", before+secret+after, err)
		}
	})
}
