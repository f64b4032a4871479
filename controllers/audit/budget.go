package audit

import (
	"context"
	"time"

	"golang.org/x/time/rate"
)

const (
	// share is the part of one core that the audit may use.
	share = 0.03
	// burst is the time that it may use at once.
	burst = 100 * time.Millisecond
	// requestRate and requestBurst limit requests, in each second and at once.
	requestRate, requestBurst = 5, 10
)

// budget limits the time of plans and evaluations, and the requests to the API server.
type budget struct{ work, requests *rate.Limiter }

func newBudget() *budget {
	perSecond := share * float64(time.Second)
	return &budget{work: rate.NewLimiter(rate.Limit(perSecond), int(burst)), requests: rate.NewLimiter(requestRate, requestBurst)}
}

// request waits until another request may be sent.
func (b *budget) request(ctx context.Context) error { return b.requests.Wait(ctx) }

// spend waits until the time that some work took is within the share. The time that other
// goroutines took the processor counts too, so the share is an upper limit.
func (b *budget) spend(ctx context.Context, used time.Duration) error {
	for used > 0 {
		part := min(used, burst)
		if err := b.work.WaitN(ctx, int(part)); err != nil {
			return err
		}
		used -= part
	}
	return nil
}
