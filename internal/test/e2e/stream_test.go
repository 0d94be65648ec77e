package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/again"
	"github.com/jobshaper/jobshaper/internal/history"
	"github.com/jobshaper/jobshaper/internal/redisurl"
	"github.com/jobshaper/jobshaper/shaper"
)

// stream is what a producer does that offers jobs all the time: to each tenant at its rate, of the
// kinds in mix.
type stream struct {
	Rates map[string]buckets.Rate
	Seed  uint64
	Mix   mix
}

// mix is a table of kinds of jobs, with weights.
type mix []struct {
	Weight int
	Play   play
}

func (m mix) pick(chance *rand.Rand) play {
	total := 0
	for _, k := range m {
		total += k.Weight
	}
	n := chance.IntN(total)
	for _, k := range m {
		if n -= k.Weight; n < 0 {
			return k.Play
		}
	}
	panic("not reached")
}

// pour offers until ctx ends. It says "ready" before the first offer.
func (r role) pour(ctx context.Context) error {
	o, err := newOperator(r, redisurl.Config{})
	if err != nil {
		return err
	}
	defer o.close()
	fmt.Println("ready")
	prefix := strconv.FormatInt(history.Now(), 36)
	var tenants sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for tenant, rate := range r.Stream.Rates {
		tenants.Go(func() {
			chance := rand.New(rand.NewPCG(r.Stream.Seed, uint64(len(tenant))<<8+uint64(tenant[len(tenant)-1])))
			for n := 0; ctx.Err() == nil; n++ {
				spec := shaper.Spec{Tenant: tenant, ID: prefix + "-" + strconv.Itoa(n), Type: "play", Payload: r.Stream.Mix.pick(chance).bytes()}
				if err := offerUntilAnswered(ctx, o.client, o.rec, spec); err != nil && ctx.Err() == nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
					return
				}
				again.Sleep(ctx, time.Duration(float64(rate.Interval())*(0.5+chance.Float64())))
			}
		})
	}
	tenants.Wait()
	return errors.Join(errs...)
}

// offerUntilAnswered offers a job again under the same id while it is unknown whether it was
// accepted, until ctx ends.
func offerUntilAnswered(ctx context.Context, client *shaper.Client, rec *history.Recorder, s shaper.Spec) error {
	e := history.Event{Kind: history.Offer, Tenant: s.Tenant, ID: s.ID}
	if err := rec.Record(e); err != nil {
		return err
	}
	for {
		// Not ctx: an answer that is under way is worth waiting for.
		result, err := client.Offer(context.Background(), s)
		switch {
		case err == nil:
			return rec.Record(answer(e, result))
		case !errors.Is(err, shaper.ErrStore):
			return err
		case !again.Sleep(ctx, 50*time.Millisecond):
			return ctx.Err()
		}
	}
}
