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
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"github.com/ostiary/ostiary/internal/policy"
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
// error is a *policy.AuthorizerUnavailableError. An evaluation error in the result of
// the review is not.
func (a *Authorizer) Authorize(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	start := time.Now()
	var status authorizationv1.SubjectAccessReviewStatus
	var err error
	queue.Yield(ctx, func() { status, err = a.review(ctx, attributes) })
	if err != nil {
		a.duration.WithLabelValues("error").Observe(time.Since(start).Seconds())
		return authorizer.DecisionNoOpinion, "", &policy.AuthorizerUnavailableError{Err: err}
	}
	decision, label := decide(status)
	a.duration.WithLabelValues(label).Observe(time.Since(start).Seconds())
	if status.EvaluationError != "" {
		err = errors.New(status.EvaluationError)
	}
	return decision, status.Reason, err
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
	review, err := a.reviews.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: specOf(attributes)}, metav1.CreateOptions{})
	if err != nil {
		return authorizationv1.SubjectAccessReviewStatus{}, err
	}
	if review.Status.Allowed && review.Status.Denied {
		return authorizationv1.SubjectAccessReviewStatus{}, errors.New("the SubjectAccessReview is both allowed and denied")
	}
	return review.Status, nil
}

func decide(status authorizationv1.SubjectAccessReviewStatus) (decision authorizer.Decision, label string) {
	switch {
	case status.Denied:
		return authorizer.DecisionDeny, "denied"
	case status.Allowed:
		return authorizer.DecisionAllow, "allowed"
	default:
		return authorizer.DecisionNoOpinion, "no_opinion"
	}
}

func specOf(a authorizer.Attributes) authorizationv1.SubjectAccessReviewSpec {
	var spec authorizationv1.SubjectAccessReviewSpec
	if u := a.GetUser(); u != nil {
		spec.User, spec.UID, spec.Groups, spec.Extra = u.GetName(), u.GetUID(), u.GetGroups(), extraOf(u)
	}
	if !a.IsResourceRequest() {
		spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: a.GetPath(), Verb: a.GetVerb()}
		return spec
	}
	spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
		Namespace: a.GetNamespace(), Verb: a.GetVerb(), Group: a.GetAPIGroup(), Version: a.GetAPIVersion(),
		Resource: a.GetResource(), Subresource: a.GetSubresource(), Name: a.GetName(),
		FieldSelector: fieldSelectorOf(a), LabelSelector: labelSelectorOf(a),
	}
	return spec
}

func extraOf(u user.Info) map[string]authorizationv1.ExtraValue {
	var out map[string]authorizationv1.ExtraValue
	for key, values := range u.GetExtra() {
		if out == nil {
			out = map[string]authorizationv1.ExtraValue{}
		}
		out[key] = values
	}
	return out
}
