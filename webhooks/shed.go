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
	// Reviews of WebhookPolicies and canaries have limiters of their own, so that policies can be corrected and probes
	// succeed under any load of other requests. A review mostly waits for compilations, which have a limit of their own. One
	// user can have two thirds of the reviews, 64.
	maxReviews        = 96
	maxCanaries       = 4
	maxQueuedCanaries = 60

	// largeReview is the size of a body, in bytes, above which a request counts as large. Large requests get 1/largeShare
	// of the evaluations: by default one for every two processors. Others never wait for them: one can take a second.
	largeReview    = 512 << 10
	largeShare     = 8
	maxQueuedLarge = 60
)

// limiters bound the number of concurrent evaluations, and share them between flows: see envelope.flow.
type limiters struct {
	policies, large, review, canary *queue.Limiter
}

func newLimiters(o Options) limiters {
	slots := max(1, o.MaxEvaluations/largeShare)
	return limiters{
		policies: queue.New(o.MaxEvaluations, o.MaxInFlight),
		large:    queue.New(slots, slots+maxQueuedLarge),
		review:   queue.New(maxReviews, maxReviews),
		canary:   queue.New(maxCanaries, maxCanaries+maxQueuedCanaries),
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

// maxWait returns how long a request may wait for an evaluation slot or for memory: half of the remaining time. The
// other half is for the evaluation, or for a retry at another replica.
func maxWait(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return maxTimeout
	}
	return time.Until(deadline) / 2
}

// The reasons for which requests are shed, in addition to those of package queue. They are values of a metric label.
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

// shed returns the failure for a request that would exceed a limit. API servers retry after Retry-After, on a new
// connection and perhaps at another replica. With a timeout below 2 s they retry at once, to have time for an answer.
func shed(reason, message string, timeout time.Duration) *failure {
	pause := time.Second
	if timeout < 2*pause {
		pause = 0
	}
	return &failure{code: http.StatusServiceUnavailable, message: message, retryAfter: retryAfter(pause), shed: reason}
}

// decodingFailed returns the failure for a review that cannot be decoded.
func decodingFailed(err error, timeout time.Duration) *failure {
	var busy *unstructuredjson.BusyError
	if errors.As(err, &busy) {
		return shed(shedMemory, busy.Error(), timeout)
	}
	return &failure{code: http.StatusBadRequest, message: err.Error()}
}

// waitFailed returns the failure for a request that was not read or did not get an evaluation slot.
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
