package policyvalidator

import (
	"context"
	"runtime/debug"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/advice"
	"github.com/ostiary/ostiary/internal/panics"
)

const (
	// discoverWithin bounds the time to read the resources of the API server again.
	discoverWithin = 2 * time.Second
	// checkWithin bounds the checks of one policy. With discoverWithin it leaves time to
	// answer within the timeout of the webhook, which is 5 seconds.
	checkWithin = 1500 * time.Millisecond
)

// Served are the resources of the API server.
type Served = map[schema.GroupVersion][]metav1.APIResource

// Check finds warnings about a valid policy by reading from the API server. When ctx
// ends, it returns those that it has found.
type Check func(ctx context.Context, p *v1alpha1.WebhookPolicy, served Served) []advice.Warning

// Rehearsal is a Check that gets what the other checks have found.
type Rehearsal func(
	ctx context.Context, p *v1alpha1.WebhookPolicy, served Served, found []advice.Warning,
) []advice.Warning

// check runs the checks concurrently, and returns the warnings of those that end in
// time, in the order of the checks. A check that panics has none.
func (r *Reviewer) check(ctx context.Context, p *v1alpha1.WebhookPolicy, served Served) []advice.Warning {
	ctx, cancel := context.WithTimeout(ctx, checkWithin)
	defer cancel()
	results := make([]chan []advice.Warning, len(r.checks))
	for i, check := range r.checks {
		results[i] = make(chan []advice.Warning, 1)
		go func() { results[i] <- r.run(ctx, check, p.DeepCopy(), served) }()
	}
	var out []advice.Warning
	for _, result := range results {
		select {
		case found := <-result:
			out = append(out, found...)
		case <-ctx.Done():
		}
	}
	return out
}

func (r *Reviewer) run(ctx context.Context, check Check, p *v1alpha1.WebhookPolicy, served Served) (found []advice.Warning) {
	defer func() {
		if value := recover(); value != nil {
			r.log.Error(panics.Error(value), "checking a policy panicked", "policy", p.Name, "stack", string(debug.Stack()))
			found = nil
		}
	}()
	return check(ctx, p, served)
}
