package jobshaper_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobshaper/jobshaper"
)

// Jobs are offered and run. The README shows this one.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	// A Redis to try things with. Your own is a redis.NewClient(&redis.Options{…}), with
	// ContextTimeoutEnabled: true, so that deadlines hold.
	store, err := jobshaper.OpenEmbedded(ctx, "")
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()

	mux := asynq.NewServeMux()
	mux.HandleFunc("video:transcode", func(ctx context.Context, task *asynq.Task) error {
		job, _ := jobshaper.JobFrom(ctx)
		jobshaper.SetResult(ctx, fmt.Appendf(nil, "%s of %s", task.Payload(), job.Tenant))
		return nil
	})
	queue, err := jobshaper.Open(store.Client(), "transcoder", jobshaper.Config{
		Policy:  jobshaper.DownstreamPolicy{Rate: jobshaper.PerSecond(50)}, // of all tenants together
		Tenants: map[string]jobshaper.Policy{"acme": {Rate: jobshaper.PerSecond(10), Depth: 1000}},
		Handler: mux, // without one, this process only offers jobs
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := queue.Start(ctx); err != nil {
		log.Fatal(err)
	}
	defer queue.Stop() // running jobs may end

	var last time.Time
	for _, film := range []string{"Metropolis", "Nosferatu"} {
		result, err := queue.Enqueue(ctx, "acme", asynq.NewTask("video:transcode", []byte(film)),
			asynq.Retention(time.Hour)) // without it there is no result
		if err != nil { // it cannot be used, or Redis failed
			log.Fatal(err)
		}
		if result.Status == jobshaper.Refused { // a value, not an error; it left no trace
			fmt.Println("no room:", result.Reason, "- try again in", result.RetryAfter)
			continue
		}
		job, err := queue.Wait(ctx, "acme", result.ID)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(job.State, string(job.Result), job.Slot.Sub(last) >= 100*time.Millisecond)
		last = job.Slot
	}
	// Output:
	// done Metropolis of acme true
	// done Nosferatu of acme true
}

// A job that does not fit is refused, with a time to try again. A refusal is a value.
func ExampleQueue_Enqueue_refused() {
	ctx := context.Background()
	store, err := jobshaper.OpenEmbedded(ctx, "")
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	queue, err := jobshaper.Open(store.Client(), "mail", jobshaper.Config{
		Tenants: map[string]jobshaper.Policy{"acme": {Depth: 2}},
		Handler: asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil }),
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := queue.Start(ctx); err != nil {
		log.Fatal(err)
	}
	defer queue.Stop()
	if err := queue.Admin().Pause(ctx, "acme", time.Minute); err != nil { // nothing leaves before then
		log.Fatal(err)
	}

	for range 3 {
		result, err := queue.Enqueue(ctx, "acme", asynq.NewTask("mail:send", nil))
		switch {
		case err != nil:
			log.Fatal(err)
		case result.Status == jobshaper.Refused:
			fmt.Println(result.Reason, "- try again in", result.RetryAfter.Round(time.Minute))
		default:
			fmt.Println("accepted, position", result.Position)
		}
	}
	// Output:
	// accepted, position 1
	// accepted, position 2
	// full - try again in 1m0s
}

// A downstream that asks to slow down is left alone, and the job is not charged for it.
func ExampleThrottled() {
	ctx := context.Background()
	store, err := jobshaper.OpenEmbedded(ctx, "")
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	queue, err := jobshaper.Open(store.Client(), "partner", jobshaper.Config{
		Handler: asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			if job, _ := jobshaper.JobFrom(ctx); job.Attempt == 1 {
				return jobshaper.Throttled(200*time.Millisecond, errors.New("429 Too Many Requests"))
			}
			return nil
		}),
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := queue.Start(ctx); err != nil {
		log.Fatal(err)
	}
	defer queue.Stop()

	if _, err := queue.Enqueue(ctx, "acme", asynq.NewTask("order", nil), asynq.TaskID("o-1")); err != nil {
		log.Fatal(err)
	}
	job, err := queue.Wait(ctx, "acme", "o-1")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s after %d starts, charged for %d\n", job.State, job.Attempt, job.Charged)
	// Output:
	// done after 2 starts, charged for 1
}

// The end of the context that Start was given begins an orderly stop, and Stop waits for it:
// running jobs may end, and waiting jobs stay in Redis for the next process.
func ExampleQueue_Stop() {
	ctx, interrupt := context.WithCancel(context.Background()) // a program would use signal.NotifyContext
	defer interrupt()
	store, err := jobshaper.OpenEmbedded(ctx, "")
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	running, interrupted := make(chan struct{}), make(chan struct{})
	queue, err := jobshaper.Open(store.Client(), "transcoder", jobshaper.Config{
		Handler: asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
			close(running)
			<-interrupted // it goes on for a while
			return nil
		}),
		Grace: time.Minute,
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := queue.Start(ctx); err != nil {
		log.Fatal(err)
	}
	now := jobshaper.Spec{Tenant: "acme", ID: "now", Type: "video:transcode"}
	later := jobshaper.Spec{Tenant: "acme", ID: "later", Type: "video:transcode", Delay: time.Hour}
	for _, o := range queue.OfferMany(ctx, []jobshaper.Spec{now, later}) {
		if o.Err != nil {
			log.Fatal(o.Err)
		}
	}
	<-running
	interrupt()
	close(interrupted)
	queue.Stop()

	for _, spec := range []jobshaper.Spec{now, later} {
		job, err := queue.Find(context.Background(), spec.Tenant, spec.ID)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(job.ID, job.State)
	}
	// Output:
	// now done
	// later delayed
}

// A rate that changes while jobs wait applies to them too.
func ExampleQueue_Admin() {
	ctx := context.Background()
	store, err := jobshaper.OpenEmbedded(ctx, "")
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	rate, err := jobshaper.ParseRate("1/d")
	if err != nil {
		log.Fatal(err)
	}
	queue, err := jobshaper.Open(store.Client(), "reports", jobshaper.Config{
		Tenants: map[string]jobshaper.Policy{"acme": {Rate: rate}},
		Handler: asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil }),
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := queue.Start(ctx); err != nil {
		log.Fatal(err)
	}
	defer queue.Stop()

	today := jobshaper.Spec{Tenant: "acme", ID: "today", Type: "report"}
	tomorrow := jobshaper.Spec{Tenant: "acme", ID: "tomorrow", Type: "report"}
	for _, o := range queue.OfferMany(ctx, []jobshaper.Spec{today, tomorrow}) {
		if o.Err != nil {
			log.Fatal(o.Err)
		}
	}
	if err := queue.Admin().SetTenant(ctx, "acme", jobshaper.Policy{Rate: jobshaper.PerSecond(5)}); err != nil {
		log.Fatal(err)
	}
	for _, spec := range []jobshaper.Spec{today, tomorrow} {
		job, err := queue.Wait(ctx, spec.Tenant, spec.ID)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(job.ID, job.State)
	}
	// Output:
	// today done
	// tomorrow done
}
