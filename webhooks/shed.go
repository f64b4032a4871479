package webhooks

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/ostiary/ostiary/internal/queue"
	"github.com/ostiary/ostiary/internal/unstructuredjson"
)

const (
	// Reviews of policies and canaries have lines of their own: however many calls there are for policies, somebody
	// can still mend one, and Ostiary can still find out whether it is reached. A review waits for compilations more
	// than it computes, and bounds those itself.
	reviewSlots   = 64
	canarySlots   = 4
	canaryWaiting = 60

	// largeReview is the size of a body from which a request counts as large. One part in largeShare of the evaluations
	// is for large requests, by default half of the processors. Other requests never wait for them: a large object can
	// take a second.
	largeReview  = 512 << 10
	largeShare   = 8
	largeWaiting = 60
)

// limiters bound the requests that are evaluated at a time.
type limiters struct {
	policies, large, review, canary *queue.Limiter
}

func newLimiters(o Options) limiters {
	slots := max(1, o.MaxEvaluations/largeShare)
	return limiters{
		policies: queue.New(o.MaxEvaluations, o.MaxInFlight),
		large:    queue.New(slots, slots+largeWaiting),
		review:   queue.New(reviewSlots, reviewSlots),
		canary:   queue.New(canarySlots, canarySlots+canaryWaiting),
	}
}

func (l limiters) of(to endpoint, size int) *queue.Limiter {
	switch {
	case to == reviewEndpoint:
		return l.review
	case to == canaryEndpoint:
		return l.canary
	case size > largeReview:
		return l.large
	}
	return l.policies
}

// maxWait is how long a request waits for its turn, or for memory: half of the time that is left. The rest is for the
// answer, or for another try at another replica.
func maxWait(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return maxTimeout
	}
	return time.Until(deadline) / 2
}

// The reasons for which requests are turned away, beside those for which there is no turn.
const (
	shedMemory      = "memory"
	shedConnections = "connections"
	shedLease       = "lease"
)

func shedReasons() []string {
	reasons := []string{shedMemory, shedConnections, shedLease}
	for _, reason := range queue.Reasons() {
		reasons = append(reasons, string(reason))
	}
	return reasons
}

// shed is the failure for what would exceed a limit. API servers try again after a pause, for which there has to be
// time: where there is little, they do so at once. That takes a new connection, perhaps to another replica.
func shed(reason, message string, timeout time.Duration) *failure {
	pause := time.Second
	if timeout < 2*pause {
		pause = 0
	}
	return &failure{code: http.StatusServiceUnavailable, message: message, retryAfter: retryAfter(pause), shed: reason}
}

// decodingFailed is the failure for a review that could not be decoded.
func decodingFailed(err error, timeout time.Duration) *failure {
	var busy *unstructuredjson.BusyError
	if errors.As(err, &busy) {
		return shed(shedMemory, busy.Error(), timeout)
	}
	return &failure{code: http.StatusBadRequest, message: err.Error()}
}

// waitFailed is the failure for a request that could not be read, or did not get a turn.
func (h *handler) waitFailed(err error, timeout time.Duration) error {
	var busy *queue.BusyError
	switch {
	case errors.Is(err, errMemory):
		return shed(shedMemory, err.Error(), timeout)
	case errors.As(err, &busy):
		return shed(string(busy.Reason), busy.Error(), timeout)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return noDecision(timeout)
	}
	return err
}
