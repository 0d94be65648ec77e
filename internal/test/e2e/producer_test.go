package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/jobshaper/jobshaper/internal/history"
	"github.com/jobshaper/jobshaper/internal/redisurl"
	"github.com/jobshaper/jobshaper/shaper"
)

// offering is what a producer does: it offers Jobs jobs at the same instant, each from a goroutine
// of its own, once it reads a line on stdin; and as many again as soon as each is answered, Rounds
// times in all.
type offering struct {
	Tenant string
	Prefix string // of the jobs' ids
	Jobs   int
	Rounds int // default 1
}

func (r role) produce(ctx context.Context) error {
	o, err := newOperator(r, redisurl.Config{PoolSize: r.Offer.Jobs})
	if err != nil {
		return err
	}
	defer o.close()
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	var offers sync.WaitGroup
	errs := make([]error, r.Offer.Jobs)
	for i := range r.Offer.Jobs {
		offers.Go(func() {
			for n := range max(1, r.Offer.Rounds) {
				_, err := offer(ctx, o.client, o.rec, shaper.Spec{
					Tenant: r.Offer.Tenant, ID: fmt.Sprintf("%s%03d-%d", r.Offer.Prefix, i, n), Type: "play", Payload: play{}.bytes(),
				})
				errs[i] = errors.Join(errs[i], err)
			}
		})
	}
	offers.Wait()
	return errors.Join(errs...)
}

// offer offers one job and writes down what came of it.
func offer(ctx context.Context, client *shaper.Client, rec *history.Recorder, s shaper.Spec) (shaper.Result, error) {
	e := history.Event{Kind: history.Offer, Tenant: s.Tenant, ID: s.ID}
	if err := rec.Record(e); err != nil {
		return shaper.Result{}, err
	}
	result, err := client.Offer(ctx, s)
	if err != nil {
		return result, err
	}
	return result, rec.Record(answer(e, result))
}

// answer is the event that answers an offer.
func answer(e history.Event, r shaper.Result) history.Event {
	e.Kind = history.Accept
	if r.Status == shaper.Refused {
		e.Kind, e.Outcome = history.Refuse, r.Reason
	}
	return e
}
