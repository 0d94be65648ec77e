package redisurl

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// The keys on which a probe calls a command without changing anything: a key that does not exist
// (none), or, where the command would create that, a string (held), which commands for lists,
// hashes and sets refuse. Redis checks rights first.
const (
	none = "{none}"
	held = "{held}"
)

// probes are the commands that scripts, our programs and asynq call (and those of a departure log),
// each in a harmless form. The first makes the string. deploy/users.acl must name the same
// commands; a test compares them.
var probes = []string{
	"set {held} x px 10000",
	"get {none}", "mget {none}", "incr {held}", "setex {held} 0 x",
	"del {none}", "unlink {none}", "exists {none}", "expire {none} 1", "expireat {none} 1", "pexpire {none} 1", "persist {none}", "pttl {none}",
	"hset {held} f v", "hsetnx {held} f v", "hincrby {held} f 1",
	"hget {none} f", "hmget {none} f", "hgetall {none}", "hdel {none} f", "hexists {none} f", "hlen {none}", "hvals {none}", "hscan {none} 0",
	"lpush {held} x", "rpush {held} x", "lpop {none}", "rpop {none}", "rpoplpush {none} {none}", "lset {none} 0 x", "ltrim {none} 0 0",
	"linsert {none} before a b", "lrem {none} 0 a", "llen {none}", "lrange {none} 0 0", "lindex {none} 0", "lpos {none} a",
	"sadd {held} x", "srem {none} x", "sismember {none} x", "smembers {none}",
	"zadd {held} 1 x", "zrem {none} x", "zremrangebyrank {none} 0 0", "zremrangebyscore {none} 0 0",
	"zcard {none}", "zcount {none} 0 0", "zscore {none} x", "zscan {none} 0", "zrank {none} x", "zpopmin {none}", "zpopmax {none}", "zrange {none} 0 0", "zrevrange {none} 0 0", "zrangebyscore {none} 0 0",
	"xadd {held} * f v", "xrange {none} - +", "xrevrange {none} + -",
	"eval return(1) 1 {none}", "evalsha 0000000000000000000000000000000000000000 1 {none}",
	"time", "ping", "wait 0 1",
}

// lack collects what a user may not do, as rules of ACL SETUSER.
type lack struct{ commands, keys, channels []string }

// note files the answer to a command that touched what the rule `of` allows.
func (l *lack) note(command, of string, err error) {
	switch {
	case isUnknown(err), isDenial(err) && strings.Contains(err.Error(), "permissions to run"):
		l.commands = append(l.commands, "+"+command)
	case isDenial(err) && strings.HasPrefix(of, "&"):
		l.channels = append(l.channels, of)
	case isDenial(err):
		l.keys = append(l.keys, of)
	}
}

// rights tries every command and every kind of key and channel, and says which are refused.
func rights(ctx context.Context, client *redis.Client, asCluster bool) []Problem {
	tag, err := servedTag(ctx, client, asCluster)
	if err != nil {
		return []Problem{silent(ctx, client, err)}
	}
	var l lack
	for _, space := range []struct {
		rule   string
		probes []string
	}{{"~shaper:*", probes}, {"~asynq:*", []string{"get {none}", "del {none}"}}} { // commands once, keys of each kind
		prefix := strings.Trim(space.rule, "~*") + "{" + tag + "}:doctor:"
		if err := l.try(ctx, client, prefix, space.rule, space.probes); err != nil {
			return []Problem{silent(ctx, client, err)}
		}
	}
	for _, c := range []struct{ channel, rule string }{{"shaper:{" + tag + "}:sig", "&shaper:*"}, {"asynq:cancel", "&asynq:cancel"}} {
		l.note("publish", c.rule, client.Publish(ctx, c.channel, "").Err())
		l.note("subscribe", c.rule, subscribe(ctx, client, c.channel))
	}
	problems := l.problems(client)
	if len(problems) == 0 {
		problems = seesRestarts(ctx, client, "shaper:{"+tag+"}:doctor:none")
	}
	return problems
}

// try makes the probes, on keys that begin with prefix. It fails if the server does not answer.
func (l *lack) try(ctx context.Context, client *redis.Client, prefix, rule string, probes []string) error {
	keys := strings.NewReplacer(none, prefix+"none", held, prefix+"held")
	var commands []string
	pipe := client.Pipeline()
	for i, text := range probes {
		var args []any
		for _, word := range strings.Fields(text) {
			args = append(args, keys.Replace(word))
		}
		if i == 0 && strings.Contains(text, held) {
			err := client.Do(ctx, args...).Err()
			if err != nil && !isReply(err) {
				return err
			}
			l.note(args[0].(string), rule, err)
			if err != nil { // without the string, the probes on it would create their keys
				probes = slices.DeleteFunc(slices.Clone(probes), func(p string) bool { return strings.Contains(p, held) })
				return l.try(ctx, client, prefix, rule, probes)
			}
			defer client.Del(context.WithoutCancel(ctx), prefix+"held") // if that is refused, the key expires
			continue
		}
		commands = append(commands, args[0].(string))
		pipe.Do(ctx, args...)
	}
	answers, err := pipe.Exec(ctx)
	if err != nil && !isReply(err) {
		return err
	}
	for i, answer := range answers {
		l.note(commands[i], rule, answer.Err())
	}
	return nil
}

// problems says which rights are missing, one problem for each kind.
func (l *lack) problems(client *redis.Client) []Problem {
	var found []Problem
	for _, kind := range []struct {
		what  string
		rules []string
	}{{"to commands", l.commands}, {"to keys", l.keys}, {"to channels", l.channels}} {
		if len(kind.rules) == 0 {
			continue
		}
		slices.Sort(kind.rules)
		rules := strings.Join(slices.Compact(kind.rules), " ")
		found = append(found, Problem{Severity: Refuse, Text: "rights are missing " + kind.what + ": " + rules,
			Fix: "want " + setUser(client, rules) + ", see deploy/users.acl"})
	}
	return found
}

// restartProbe asks for the run id as the scripts of the queue do.
const restartProbe = `local ok, info = pcall(redis.call, 'INFO', 'server')
return ok and type(info) == 'string' and string.find(info, 'run_id:', 1, true) and 1 or 0`

// seesRestarts says when scripts cannot tell that Redis has restarted.
func seesRestarts(ctx context.Context, client *redis.Client, key string) []Problem {
	seen, err := client.Eval(ctx, restartProbe, []string{key}).Int()
	if err != nil || seen == 1 || isDenial(client.Info(ctx, "server").Err()) {
		return nil // what keeps scripts from running, or everybody from INFO, has been reported
	}
	return []Problem{{Severity: Warn, Text: "scripts may not call INFO: after a restart that lost the last writes, a job may start too early"}}
}

// subscribe tries to subscribe to a channel and returns the error, if any.
func subscribe(ctx context.Context, client *redis.Client, channel string) error {
	sub := client.Subscribe(ctx, channel)
	_, err := sub.Receive(ctx)
	return errors.Join(err, sub.Close())
}

// servedTag returns a hash tag that no downstream has, since it is not a valid name, and whose slot
// the node serves, in a cluster.
func servedTag(ctx context.Context, client *redis.Client, asCluster bool) (string, error) {
	const tries = 200
	base := "-doctor" + strconv.FormatUint(rand.Uint64(), 36)
	if !asCluster {
		return base, nil
	}
	pipe := client.Pipeline()
	for i := range tries {
		pipe.Exists(ctx, "shaper:{"+base+strconv.Itoa(i)+"}:doctor:none")
	}
	cmds, err := pipe.Exec(ctx)
	if err != nil && !isReply(err) {
		return "", err
	}
	for i, cmd := range cmds {
		if err := cmd.Err(); err == nil || isDenial(err) {
			return base + strconv.Itoa(i), nil
		}
	}
	return base, nil // it serves few slots or none: rights are checked before MOVED is answered
}

// isReply reports whether an error is something that the server said.
func isReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

// isDenial reports whether the server said that the user lacks a right.
func isDenial(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply) && strings.HasPrefix(reply.Error(), "NOPERM")
}

// isUnknown reports whether the server has no such command, or has renamed it.
func isUnknown(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply) && strings.HasPrefix(reply.Error(), "ERR unknown command")
}

// setUser is the command that gives a client's user rights.
func setUser(client *redis.Client, rules string) string {
	return "ACL SETUSER " + cmp.Or(client.Options().Username, "default") + " " + rules
}
