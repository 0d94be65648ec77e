package workers

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/jobshaper/jobshaper/internal/queue"
)

// taskBroker is what the asynq server of a taskMaker takes for Redis. It hands out the messages
// that are to be run, and takes results; everything else succeeds and does nothing, and no
// connection is ever made. Like heldClient it knows asynq's calls by their keys; the probe of
// newTaskMaker finds out if that fails.
type taskBroker struct {
	redis.UniversalClient
	tasks *taskMaker
}

func newTaskBroker(tasks *taskMaker) redis.UniversalClient {
	c := redis.NewClient(&redis.Options{MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}})
	_ = c.Close() // so that even what no hook sees, a subscription, goes nowhere
	c.AddHook(doNothing{})
	return &taskBroker{c, tasks}
}

// EvalSha implements redis.Scripter.
func (b *taskBroker) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	cmd := redis.NewCmd(ctx, "evalsha", sha)
	if len(keys) != 4 || !strings.HasSuffix(keys[0], ":pending") || !strings.HasSuffix(keys[1], ":paused") {
		return cmd
	}
	if message, ok := b.tasks.take(); ok {
		cmd.SetVal(message)
	} else {
		cmd.SetErr(redis.Nil)
	}
	return cmd
}

// HSet is how asynq's ResultWriter writes.
func (b *taskBroker) HSet(ctx context.Context, key string, values ...any) *redis.IntCmd {
	cmd := redis.NewIntCmd(ctx, "hset", key)
	if len(values) == 2 && values[0] == "result" {
		if result, ok := values[1].([]byte); ok {
			cmd.SetErr(b.tasks.write(key, result))
			return cmd
		}
	}
	cmd.SetErr(errors.New("not what asynq v0.26 writes"))
	return cmd
}

type doNothing struct{}

func (doNothing) DialHook(next redis.DialHook) redis.DialHook { return next }
func (doNothing) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(context.Context, redis.Cmder) error { return nil }
}
func (doNothing) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(context.Context, []redis.Cmder) error { return nil }
}

// Fields of asynq's TaskMessage. They do not change from version to version, since such messages
// are stored in people's Redis.
const (
	fieldType    = 1
	fieldPayload = 2
	fieldID      = 3
	fieldQueue   = 4
	fieldRetry   = 5
	fieldRetried = 6
	fieldTimeout = 8
	fieldHeaders = 15

	fieldName, fieldValue = 1, 2 // of a header
)

// noTimeout is longer than any job's timeout, which is our business.
const noTimeout = uint64(100 * 365 * 24 * time.Hour / time.Second)

// messageOf encodes a job as asynq does a task (protocol buffers).
func messageOf(g *queue.Grant) string {
	b := make([]byte, 0, 256)
	b = appendBytes(b, fieldType, strings.ToValidUTF8(g.Type, "\uFFFD")) // asynq would not read it
	b = appendBytes(b, fieldID, g.ID)
	b = appendBytes(b, fieldQueue, g.Tenant)
	b = appendNumber(b, fieldRetry, uint64(min(max(g.MaxAttempts-1, 0), math.MaxInt32)))
	b = appendNumber(b, fieldRetried, uint64(min(max(g.Charged-1, 0), math.MaxInt32)))
	b = appendNumber(b, fieldTimeout, noTimeout)
	for name, value := range g.Headers {
		b = appendBytes(b, fieldHeaders, appendBytes(appendBytes(nil, fieldName, name), fieldValue, value))
	}
	b = appendBytesOf(b, fieldPayload, len(g.Payload))
	var message strings.Builder // payloads may be large: this copies them once
	message.Grow(len(b) + len(g.Payload))
	message.Write(b)
	message.Write(g.Payload)
	return message.String()
}

// payloadOf returns the payload of an encoded task; "" if there is none.
func payloadOf(message string) string {
	for b := []byte(message); len(b) > 0; {
		key, n := binary.Uvarint(b)
		length, m := binary.Uvarint(b[max(0, n):])
		if n <= 0 || m <= 0 {
			return ""
		}
		b = b[n+m:]
		switch {
		case key&7 == 0: // a number, which was read as a length
		case key&7 != 2 || length > uint64(len(b)):
			return ""
		case key>>3 == fieldPayload:
			return string(b[:length])
		default:
			b = b[length:]
		}
	}
	return ""
}

func appendNumber(b []byte, field, n uint64) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(b, field<<3), n)
}

func appendBytes[T string | []byte](b []byte, field uint64, v T) []byte {
	return append(appendBytesOf(b, field, len(v)), v...)
}

// appendBytesOf appends what comes before n bytes.
func appendBytesOf(b []byte, field uint64, n int) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(b, field<<3|2), uint64(n))
}
