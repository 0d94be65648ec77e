package migration

import (
	"context"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/test/redistest"
	"github.com/jobshaper/jobshaper/internal/test/testenv"
	"github.com/jobshaper/jobshaper/shaper"
)

// TestSameBeforeAndAfter runs the service on asynq and on Jobshaper: its handler, its middleware
// and its callbacks see the same.
func TestSameBeforeAndAfter(t *testing.T) {
	want := []string{
		"mail:send mail-1 of acme, retry 0 of 3",
		"mail-1 failed: panic false, busy true",
		"mail:send mail-1 of acme, retry 0 of 3",
		"mail-1 failed: panic true, busy false",
		"mail:send mail-1 of acme, retry 1 of 3",
	}
	for name, tc := range map[string]struct {
		run    func(context.Context, redis.UniversalClient, mail) error
		result func(context.Context, redis.UniversalClient) (string, error) // "" while there is none
	}{
		"before": {before, func(_ context.Context, rdb redis.UniversalClient) (string, error) {
			info, err := asynq.NewInspectorFromRedisClient(rdb).GetTaskInfo("acme", "mail-1")
			if err != nil || info.State != asynq.TaskStateCompleted {
				return "", err
			}
			return string(info.Result), nil
		}},
		"after": {after, func(ctx context.Context, rdb redis.UniversalClient) (string, error) {
			client, err := shaper.NewClient(rdb, "mailer", shaper.ClientConfig{})
			if err != nil {
				return "", err
			}
			job, err := client.Wait(ctx, "acme", "mail-1")
			return string(job.Result), err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			rdb := redistest.Start(t).Client()
			ctx, stop := context.WithTimeout(t.Context(), testenv.Patience)
			defer stop()
			var mu sync.Mutex
			var got []string
			told := make(chan struct{}, 100)
			m := mail{tell: func(line string) {
				mu.Lock()
				defer mu.Unlock()
				got = append(got, line)
				told <- struct{}{}
			}}
			ended := make(chan error, 1)
			go func() { ended <- tc.run(ctx, rdb, m) }()
			for range want {
				select {
				case <-told:
				case err := <-ended:
					t.Fatalf("it ended: %v; told %q", err, got)
				case <-ctx.Done():
					t.Fatalf("told %q, want %q", got, want)
				}
			}
			result := ""
			for result == "" {
				var err error
				if result, err = tc.result(ctx, rdb); err != nil {
					t.Fatal(err)
				}
			}
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if !slices.Equal(got, want) || result != "sent to ann" {
				t.Errorf("told %q, result %q; want %q, sent to ann", got, result, want)
			}
		})
	}
}

// TestTheDocumentShowsThis: what readers copy from the document is what is compiled and run here.
func TestTheDocumentShowsThis(t *testing.T) {
	doc, err := os.ReadFile("../../docs/migrating-from-asynq.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"handlers.go", "before.go", "after.go"} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(doc), "```go\n"+string(source)+"```\n") {
			t.Errorf("docs/migrating-from-asynq.md does not show %s", file)
		}
	}
}
