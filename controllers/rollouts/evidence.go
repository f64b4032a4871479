package rollouts

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/audit/results"
	"github.com/ostiary/ostiary/internal/pluginapi"
	"github.com/ostiary/ostiary/internal/rollout"
)

// readTimeout limits the reads of one decision: of namespaces that are not in the cache.
const readTimeout = 5 * time.Second

// Evidence finds what ends steps. It is safe for concurrent use.
type Evidence struct {
	// Audit finds violations of stored objects; nil if the audit is disabled.
	Audit interface {
		Found(p *v1alpha1.WebhookPolicy, selects func(namespace string) bool) results.Found
	}
	Namespaces pluginapi.Namespaces
	Requests   *Sum
}

// Of returns the evidence of a policy at a time.
func (e *Evidence) Of(ctx context.Context, p *v1alpha1.WebhookPolicy, now time.Time) rollout.Source {
	return func(b *v1alpha1.Binding, state *v1alpha1.BindingStatus, step *v1alpha1.RolloutStep) (objects, requests rollout.Evidence) {
		key := rollout.EvidenceKey(state.Token)
		return e.objects(ctx, p, b, step, key), e.Requests.Requests(key, now)
	}
}

func (e *Evidence) objects(
	ctx context.Context, p *v1alpha1.WebhookPolicy, b *v1alpha1.Binding, step *v1alpha1.RolloutStep, key string,
) rollout.Evidence {
	if e.Audit == nil {
		return rollout.Evidence{Missing: "the audit is disabled by --audit-interval=0: enable it, or set evidence to Requests"}
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	found := e.Audit.Found(p, func(namespace string) bool { return e.selects(ctx, b, step, namespace) })
	if found.Missing == "" && (found.Compiled == nil || !found.Compiled.CountsFor(key)) {
		return rollout.Evidence{IsPending: true} // the scan began before this replica had loaded the step
	}
	return rollout.Evidence{Missing: found.Missing, Count: found.Count, Examples: found.Examples}
}

// selects reports whether the binding and its step apply to the objects in a namespace. One whose labels cannot be read counts.
func (e *Evidence) selects(ctx context.Context, b *v1alpha1.Binding, step *v1alpha1.RolloutStep, namespace string) bool {
	var ofBinding *metav1.LabelSelector
	if b.MatchResources != nil {
		ofBinding = b.MatchResources.NamespaceSelector
	}
	switch {
	case ofBinding == nil && step.NamespaceSelector == nil:
		return true
	case namespace == "":
		return step.NamespaceSelector == nil
	}
	ns, err := e.Namespaces.GetNamespace(ctx, namespace)
	if err != nil {
		return !apierrors.IsNotFound(err)
	}
	return matches(ofBinding, ns.Labels) && matches(step.NamespaceSelector, ns.Labels)
}

func matches(selector *metav1.LabelSelector, set labels.Set) bool {
	if selector == nil {
		return true
	}
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	return err != nil || parsed.Matches(set)
}
