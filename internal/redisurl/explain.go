package redisurl

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// Explain says, from the error of a client's first command, what is wrong with the connection and
// what to do about it. If the error alone does not show it, since the other side was silent or hung
// up, it connects once more to see whether the other side speaks TLS. Neither text holds a
// password, nor anything that a terminal would obey.
func Explain(ctx context.Context, client redis.UniversalClient, err error) (text, fix string) {
	to := endpointOf(client)
	var reply redis.Error
	switch {
	case strings.Contains(err.Error(), "sentinels specified in configuration are unreachable"):
		text, fix = sentinels(err)
	case errors.As(err, &reply):
		text, fix = to.refusal(reply.Error())
	default:
		text, fix = to.failure(ctx, err)
	}
	return printable(text), fix
}

// endpoint is where a client connects to.
type endpoint struct {
	network, addr string // addr is "" where sentinels name it
	tls           bool
	user          string
	db            int
}

func endpointOf(client redis.UniversalClient) endpoint {
	switch c := client.(type) {
	case *redis.Client:
		o := c.Options()
		e := endpoint{o.Network, o.Addr, o.TLSConfig != nil, o.Username, o.DB}
		if _, _, err := net.SplitHostPort(e.addr); err != nil && e.network != "unix" {
			e.addr = "" // what go-redis calls the client of a sentinel
		}
		return e
	case *redis.ClusterClient:
		o := c.Options()
		return endpoint{"tcp", o.Addrs[0], o.TLSConfig != nil, o.Username, 0}
	}
	return endpoint{}
}

// refusal explains what a server said.
func (e endpoint) refusal(said string) (text, fix string) {
	user := "user " + e.user
	if e.user == "" {
		user = "the default user"
	}
	for _, r := range []struct{ prefix, text, fix string }{
		{"NOAUTH", "it wants a password, and was given none", "want it in the URL: redis://:PASSWORD@HOST or redis://USER:PASSWORD@HOST"},
		{"WRONGPASS", "it does not take the password that it was given for " + user, "want user and password in the URL as the server knows them"},
		{"ERR invalid password", "it does not take the password that it was given", "want the one in the URL that the server knows"},
		{"ERR AUTH", "it knows no password, and was given one", "want a URL without one, or the one of another server"},
		{"NOPERM", user + " may not do what is needed", "want the rights of deploy/users.acl; `shaper doctor` lists what is missing"},
		{"ERR DB index is out of range", fmt.Sprintf("it has no database %d", e.db), "want a lower one at the end of the URL, usually 0 to 15: its setting `databases` says how many there are"},
		{"ERR SELECT is not allowed in cluster mode", "it is a node of a cluster, which has only database 0", "want a redis-cluster:// URL without a number"},
		{"ERR This instance has cluster support disabled", "it is not a node of a cluster", "want a redis:// URL"},
		{"LOADING", "it is loading its data", "try again when it has"},
		{"MASTERDOWN", "it is a replica that has lost its primary", "want the primary"},
		{"BUSY", "a script keeps it busy", "SCRIPT KILL on the server ends the script"},
		{"DENIED", "it serves only its own machine (protected mode)", "want a password or `protected-mode no` there, and a network that is safe"},
		{"ERR max number of clients", "it has as many connections as it allows", "want a larger `maxclients`, or fewer clients"},
		{"ERR unknown command", "what answers there is not a whole Redis", "want the address of a Redis of version " + oldest + " or later"},
	} {
		if strings.HasPrefix(said, r.prefix) {
			return r.text + " (" + said + ")", r.fix
		}
	}
	return "it refuses: " + said, "want a Redis, of version " + oldest + " or later, at that address"
}

// notRedis begins go-redis' error about an answer that it cannot read.
const notRedis = "redis: can't parse"

// failure explains why there was no answer that could be read.
func (e endpoint) failure(ctx context.Context, err error) (text, fix string) {
	var name *net.DNSError
	var record tls.RecordHeaderError
	var cert *tls.CertificateVerificationError
	var netErr net.Error
	is := func(targets ...error) bool {
		for _, target := range targets {
			if errors.Is(err, target) {
				return true
			}
		}
		return false
	}
	const plain, secure = "it does not speak TLS", "it speaks TLS"
	switch {
	case is(context.Canceled):
		return "interrupted", ""
	case errors.As(err, &name):
		return fmt.Sprintf("the name %q cannot be resolved: %v", name.Name, err), "want the name of a host, or its address"
	case errors.As(err, &record):
		return plain, "want redis:// in place of rediss://, or the port that does"
	case errors.As(err, &cert):
		return fmt.Sprintf("its certificate is not trusted: %v", cert.Err), "want one for that host, from an authority that this machine knows (SSL_CERT_FILE)"
	case is(syscall.ECONNREFUSED):
		return "nothing listens there: " + err.Error(), "is it running, and is the URL right?"
	case is(fs.ErrNotExist):
		return "there is no such socket: " + err.Error(), "is it running, and is that its `unixsocket`?"
	case is(fs.ErrPermission):
		return "this user may not open it: " + err.Error(), "see its `unixsocketperm`"
	case is(syscall.EHOSTUNREACH, syscall.ENETUNREACH):
		return "there is no route to it: " + err.Error(), "is the address right, and is the network up?"
	case strings.Contains(err.Error(), notRedis):
		return "what answers there is not a Redis: " + err.Error(), "want the port of a Redis"
	case is(context.DeadlineExceeded), errors.As(err, &netErr) && netErr.Timeout():
		if e.tls && e.speaksPlain(ctx) {
			return plain, "want redis:// in place of rediss://, or the port that does"
		}
		return "no answer in time: " + err.Error(), "is the address right, is there no firewall in between, and is the server neither stopped nor overloaded?"
	case is(io.EOF, syscall.ECONNRESET, syscall.EPIPE):
		if !e.tls && e.speaksTLS(ctx) {
			return secure, "want rediss:// in place of redis://, or the port that does not"
		}
		return "it hung up: " + err.Error(), "is that a Redis, and not one that is stopping or has `maxclients` connections?"
	}
	return "no answer: " + err.Error(), "is it running, and is the URL right?"
}

// sentinels explains why no sentinel names the primary.
func sentinels(err error) (text, fix string) {
	switch said := err.Error(); {
	case strings.Contains(said, "unknown command"):
		return "what answers there is no sentinel", "want a redis:// URL, or the port of the sentinels, usually 26379"
	case strings.Contains(said, redis.Nil.Error()):
		return "the sentinels know no primary of that name", "want master= in the URL as they call it"
	}
	return err.Error(), "are the sentinels running, and is the URL right?"
}

// probeWithin is how long a look at the other side may take.
const probeWithin = time.Second

// speaksPlain reports whether the other side answers as a Redis without TLS does.
func (e endpoint) speaksPlain(ctx context.Context) bool {
	conn, err := e.dial(ctx)
	if err != nil {
		return false
	}
	defer conn.Close()
	sign := make([]byte, 1)
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	_, err = io.ReadFull(conn, sign)
	return err == nil && (sign[0] == '+' || sign[0] == '-')
}

// speaksTLS reports whether the other side greets as a TLS server does. Whoever it is, it is told
// nothing.
func (e endpoint) speaksTLS(ctx context.Context) bool {
	conn, err := e.dial(ctx)
	if err != nil {
		return false
	}
	defer conn.Close()
	known := errors.New("a server that shows a certificate")
	err = tls.Client(conn, &tls.Config{InsecureSkipVerify: true, VerifyConnection: func(tls.ConnectionState) error { return known }}).HandshakeContext(ctx)
	return errors.Is(err, known)
}

func (e endpoint) dial(ctx context.Context) (net.Conn, error) {
	if e.addr == "" {
		return nil, errors.New("no address is known")
	}
	conn, err := (&net.Dialer{Timeout: probeWithin}).DialContext(context.WithoutCancel(ctx), e.network, e.addr)
	if err == nil {
		err = conn.SetDeadline(time.Now().Add(probeWithin))
	}
	return conn, err
}
