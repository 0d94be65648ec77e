package redisurl

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/redis/go-redis/v9"
)

// SetLogger sends the lines that go-redis prints on its own (failed dials, pool
// trouble, failovers) to log, as warnings. It applies to every client of the
// process, and may be called at any time.
func SetLogger(log *slog.Logger) {
	redis.SetLogger(slogAdapter{log})
}

type slogAdapter struct{ log *slog.Logger }

func (a slogAdapter) Printf(ctx context.Context, format string, v ...any) {
	if a.log.Enabled(ctx, slog.LevelWarn) {
		a.log.WarnContext(ctx, "redis client", "message", fmt.Sprintf(format, v...))
	}
}
