// Package authorization implements the CEL variable authorizer with
// SubjectAccessReviews.
package authorization

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"github.com/ostiary/ostiary/internal/accessreview"
	"github.com/ostiary/ostiary/internal/queue"
)

const (
	// timeout is for one review, including the wait for a slot. It is shorter than one
	// second, the shortest timeoutSeconds of a webhook, so that Ostiary can still
	// respond according to failurePolicy.
	timeout = 900 * time.Millisecond
	// maxConcurrent is the maximum number of concurrent reviews.
	maxConcurrent = 64
)

// Authorizer sends a review for each check. It caches no results, so that a revoked
// permission applies to the next request, like in the API server.
type Authorizer struct {
	reviews  authorizationclient.SubjectAccessReviewInterface
	slots    chan struct{}
	timeout  time.Duration
	duration *prometheus.HistogramVec
}

// New returns an Authorizer and registers its metric.
func New(reviews authorizationclient.SubjectAccessReviewInterface, registry prometheus.Registerer) *Authorizer {
	a := &Authorizer{
		reviews: reviews,
		slots:   make(chan struct{}, maxConcurrent),
		timeout: timeout,
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "ostiary_authorization_duration_seconds",
			Help:    "Time of a SubjectAccessReview, by result: allowed, denied, no_opinion or error (no answer; failurePolicy decided).",
			Buckets: []float64{1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 500e-3, 1},
		}, []string{"result"}),
	}
	registry.MustRegister(a.duration)
	return a
}

// Authorize implements authorizer.UnconditionalAuthorizer. If the review fails, the
// error is a *accessreview.UnavailableError. An evaluation error in the result of
// the review is not.
func (a *Authorizer) Authorize(ctx context.Context, attributes authorizer.Attributes) (decision authorizer.Decision, reason string, err error) {
	start := time.Now()
	var status authorizationv1.SubjectAccessReviewStatus
	queue.Yield(ctx, func() { status, err = a.review(ctx, attributes) })
	if err != nil {
		decision, err = authorizer.DecisionNoOpinion, &accessreview.UnavailableError{Err: err}
	} else {
		decision, reason, err = accessreview.Decide(status)
	}
	a.duration.WithLabelValues(labelOf(decision, err)).Observe(time.Since(start).Seconds())
	return decision, reason, err
}

func labelOf(decision authorizer.Decision, err error) string {
	var unanswered *accessreview.UnavailableError
	switch {
	case errors.As(err, &unanswered):
		return "error"
	case decision == authorizer.DecisionDeny:
		return "denied"
	case decision == authorizer.DecisionAllow:
		return "allowed"
	}
	return "no_opinion"
}

func (a *Authorizer) review(ctx context.Context, attributes authorizer.Attributes) (authorizationv1.SubjectAccessReviewStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	select {
	case a.slots <- struct{}{}:
		defer func() { <-a.slots }()
	case <-ctx.Done():
		return authorizationv1.SubjectAccessReviewStatus{}, fmt.Errorf("waiting for one of %d concurrent SubjectAccessReviews: %w", cap(a.slots), ctx.Err())
	}
	review, err := a.reviews.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: accessreview.SpecOf(attributes)}, metav1.CreateOptions{})
	if err != nil {
		return authorizationv1.SubjectAccessReviewStatus{}, err
	}
	return review.Status, nil
}
