package redisurl

import (
	"bufio"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/jobshaper/jobshaper/internal/test/redistest"
)

// speaker is a server that calls f with each connection, until the test ends.
func speaker(t *testing.T, f func(net.Conn)) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() { _ = l.Close(); close(ended) })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				f(c)
				<-ended
				_ = c.Close()
			}()
		}
	}()
	return l.Addr().String()
}

// Each way in which a connection fails has its own sentence and its own advice, and none of them
// reveals the password.
func TestExplain(t *testing.T) {
	plain, locked := redistest.Start(t), redistest.Start(t, redistest.Password("s3cret"))
	for _, user := range [][]any{{"ACL", "SETUSER", "poor", "on", ">s3cret", "+auth", "+hello"}, {"ACL", "SETUSER", "lost", "on", ">s3cret", "+ping", "+auth", "+hello"}} {
		if err := plain.Client().Do(t.Context(), user...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	t.Cleanup(secure.Close)
	webAddr, secureAddr := web.Listener.Addr().String(), secure.Listener.Addr().String()
	says := func(line string) string {
		return speaker(t, func(c net.Conn) {
			for in := bufio.NewReader(c); ; {
				if _, err := in.ReadString('\n'); err != nil {
					return
				}
				_, _ = io.WriteString(c, line+"\r\n")
			}
		})
	}
	mute := speaker(t, func(net.Conn) {})
	hangsUp := speaker(t, func(c net.Conn) { _ = c.Close() })
	for _, row := range []struct{ name, url, text, fix string }{
		{"TLS to a plain port", "rediss://:s3cret@" + plain.Addr(), "it does not speak TLS", "want redis:// in place of rediss://"},
		{"TLS to a plain port that wants a password", "rediss://:s3cret@" + locked.Addr(), "it does not speak TLS", "want redis://"},
		{"TLS to a web server", "rediss://" + webAddr, "it does not speak TLS", "want redis://"},
		{"plain to a TLS port", "redis://:s3cret@" + secureAddr, "it speaks TLS", "want rediss:// in place of redis://"},
		{"TLS of somebody unknown", "rediss://" + secureAddr + "?dial_timeout=1m", "its certificate is not trusted: x509", "authority that this machine knows"},
		{"a web server", "redis://:s3cret@" + webAddr, `what answers there is not a Redis: redis: can't parse map reply: "HTTP/1.1 400`, "want the port of a Redis"},
		{"a mail server", "redis://" + says("220 smtp ready\x1b[2J"), "what answers there is not a Redis", "want the port of a Redis"},
		{"no password", "redis://" + locked.Addr(), "it wants a password, and was given none", "want it in the URL: redis://:PASSWORD@HOST"},
		{"a wrong password", "redis://:s3cret-not@" + locked.Addr(), "it does not take the password that it was given for the default user", "want user and password"},
		{"a wrong user", "redis://nobody:s3cret@" + locked.Addr(), "the password that it was given for user nobody", "want user and password"},
		{"no such database", "redis://" + plain.Addr() + "/99", "it has no database 99 (ERR DB index is out of range)", "want a lower one at the end of the URL"},
		{"no rights", "redis://poor:s3cret@" + plain.Addr(), "user poor may not do what is needed (NOPERM", "deploy/users.acl"},
		{"no rights to a database", "redis://lost:s3cret@" + plain.Addr() + "/3", "user lost may not do what is needed (NOPERM", "deploy/users.acl"},
		{"a name of nobody", "redis://:s3cret@no-such-host.invalid", `the name "no-such-host.invalid" cannot be resolved`, "want the name of a host"},
		{"nobody there", "redis://:s3cret@127.0.0.1:1", "nothing listens there", "is it running, and is the URL right?"},
		{"no socket", "unix:///nowhere/redis.sock", "there is no such socket", "is it running"},
		{"no answer", "redis://:s3cret@" + mute + "?read_timeout=50ms&max_retries=-1", "no answer in time", "no firewall in between"},
		{"no answer over TLS", "rediss://:s3cret@" + mute + "?dial_timeout=50ms&max_retries=-1", "no answer in time", "no firewall in between"},
		{"hangs up", "redis://:s3cret@" + hangsUp, "it hung up", "is that a Redis"},
		{"loading", "redis://" + says("-LOADING Redis is loading the dataset in memory"), "it is loading its data", "try again when it has"},
		{"protected", "redis://" + says("-DENIED Redis is running in protected mode"), "it serves only its own machine (protected mode)", "want a password"},
		{"too many", "redis://" + says("-ERR max number of clients reached"), "as many connections as it allows", "maxclients"},
		{"no cluster", "redis-cluster://" + plain.Addr(), "it is not a node of a cluster", "want a redis:// URL"},
		{"no cluster there", "redis-cluster://:s3cret@127.0.0.1:1", "nothing listens there", "is it running"},
		{"no sentinel", "redis-sentinel://" + plain.Addr() + "?master=m", "what answers there is no sentinel", "want a redis:// URL"},
		{"no sentinels there", "redis-sentinel://:s3cret@127.0.0.1:1?master=m", "connection refused", "are the sentinels running"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			client, err := Open(row.url, Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			err = client.Ping(t.Context()).Err()
			if err == nil {
				t.Fatal("it answers")
			}
			text, fix := Explain(t.Context(), client, err)
			if !strings.Contains(text, row.text) || !strings.Contains(fix, row.fix) {
				t.Errorf("%v: %q, %q; want %q, %q", err, text, fix, row.text, row.fix)
			}
			if strings.Contains(text+fix, "s3cret") || strings.Contains(text, "\x1b") {
				t.Errorf("told: %q, %q", text, fix)
			}
		})
	}
}
