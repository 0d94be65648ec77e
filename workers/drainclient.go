package workers

import (
	"context"
	"crypto/sha1" // Redis names scripts by it
	"encoding/hex"
	"sync"

	"github.com/redis/go-redis/v9"
)

// A Redis that has reached its maxmemory refuses whatever may need memory, and only draining the
// queue makes room again: our own scripts may write even then (allow_oom in
// internal/queue/lua/lib/hash.lua). But a ticket passes through asynq, whose scripts would be
// refused, and everything would stand still until somebody gave Redis more memory. So asynq is
// given a client that lets its scripts do what ours do.

// drainClient is a client whose scripts, and the one command that comes before a first ticket, may
// write when maxmemory is reached: Redis refuses only the first write of a script, so each begins
// with one that needs no memory and changes nothing. It relies on asynq calling scripts as
// redis.Script.Run does: by EvalSha, and by Eval where that is answered with NOSCRIPT.
type drainClient struct {
	redis.UniversalClient
	scripts *sync.Map // the hash of asynq's script -> *redis.Script, ours
}

func newDrainClient(rdb redis.UniversalClient) *drainClient {
	return &drainClient{rdb, &sync.Map{}}
}

// mayWrite is what our scripts begin with. Its key is in the same hash slot as KEYS[1], and never
// exists.
const mayWrite = "if KEYS[1] then redis.call('DEL', KEYS[1] .. ':-') end\n"

// EvalSha implements redis.Scripter.
func (c *drainClient) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	if s, known := c.scripts.Load(sha); known {
		return s.(*redis.Script).Run(ctx, c.UniversalClient, keys, args...)
	}
	cmd := redis.NewCmd(ctx, "evalsha", sha)
	cmd.SetErr(noScript{}) // the caller comes back with the script's text
	return cmd
}

// Eval implements redis.Scripter.
func (c *drainClient) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	sum := sha1.Sum([]byte(script))
	s, _ := c.scripts.LoadOrStore(hex.EncodeToString(sum[:]), redis.NewScript(mayWrite+script))
	return s.(*redis.Script).Run(ctx, c.UniversalClient, keys, args...)
}

const addText = "redis.call('SREM', KEYS[1], '')\nreturn redis.call('SADD', KEYS[1], unpack(ARGV))"

var addScript = redis.NewScript(addText)

// SAdd is how asynq's client makes a queue known, once in a process, before it puts the first task.
func (c *drainClient) SAdd(ctx context.Context, key string, members ...any) *redis.IntCmd {
	cmd := redis.NewIntCmd(ctx, append([]any{"sadd", key}, members...)...)
	n, err := addScript.Run(ctx, c.UniversalClient, []string{key}, members...).Int64()
	cmd.SetVal(n)
	cmd.SetErr(err)
	return cmd
}

// noScript is Redis' answer to the hash of a script that it does not know.
type noScript struct{}

func (noScript) Error() string { return "NOSCRIPT No matching script." }
func (noScript) RedisError()   {}
