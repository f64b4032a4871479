// Package typechecking checks the expressions of policies against the schemas of the
// resources that they match, like the API server does for
// ValidatingAdmissionPolicies. The results are warnings. Requests do not wait for
// them.
package typechecking

import (
	"context"
	"fmt"
	"sync"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/internal/events"
	"github.com/ostiary/ostiary/internal/truncate"
)

const (
	maxWarnings = 100     // in a status
	maxWarning  = 2 << 10 // bytes, the limit in the CustomResourceDefinition
)

// Checker checks each generation of each policy once. Only the leader runs it,
// because only the leader writes statuses.
type Checker struct {
	types     validating.TypeChecker
	log       logr.Logger
	listeners events.Broadcaster
	wake      events.Signal

	mu       sync.Mutex
	policies []*v1alpha1.WebhookPolicy // candidates for a check
	results  map[types.UID]result
}

type result struct {
	generation int64
	found      *admissionregistrationv1.TypeChecking
}

// New returns a Checker without results.
func New(t validating.TypeChecker, log logr.Logger) *Checker {
	return &Checker{types: t, log: log, wake: events.NewSignal(), results: map[types.UID]result{}}
}

// Subscribe returns a channel that receives after checks, until ctx ends: after every
// hundred policies and when all are checked.
func (c *Checker) Subscribe(ctx context.Context) <-chan struct{} { return c.listeners.Subscribe(ctx) }

// Want sets the policies to check and drops the results of others. It does not change
// the policies.
func (c *Checker) Want(policies []*v1alpha1.WebhookPolicy) {
	c.mu.Lock()
	c.policies = policies
	kept := make(map[types.UID]result, len(policies))
	for _, p := range policies {
		if r, ok := c.results[p.UID]; ok {
			kept[p.UID] = r
		}
	}
	c.results = kept
	c.mu.Unlock()
	c.wake.Send()
}

// Found returns the result for the policy's generation, from its status or from this
// Checker; nil if the policy has not been checked.
func (c *Checker) Found(p *v1alpha1.WebhookPolicy) *admissionregistrationv1.TypeChecking {
	if isReported(p) {
		return p.Status.TypeChecking
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.result(p)
}

func (c *Checker) result(p *v1alpha1.WebhookPolicy) *admissionregistrationv1.TypeChecking {
	if r, ok := c.results[p.UID]; ok && r.generation == p.Generation {
		return r.found
	}
	return nil
}

// Run checks the policies, one after another, until ctx ends.
func (c *Checker) Run(ctx context.Context) error {
	for {
		if c.checkAll(ctx) {
			c.listeners.Notify()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.wake:
		}
	}
}

// checkAll reports whether it checked any policy.
func (c *Checker) checkAll(ctx context.Context) bool {
	var schemas *once
	n := 0
	for ; ctx.Err() == nil; n++ {
		p := c.next()
		if p == nil {
			break
		}
		if n%sharedChecks == 0 {
			schemas = &once{resolver: c.types.SchemaResolver, answers: map[schema.GroupVersionKind]answer{}}
			c.listeners.Notify()
		}
		found := c.check(p, schemas)
		c.mu.Lock()
		c.results[p.UID] = result{generation: p.Generation, found: found}
		c.mu.Unlock()
	}
	return n > 0
}

// next returns a policy that has not been checked; nil if there is none. It drops
// checked policies until the next call of Want.
func (c *Checker) next() *v1alpha1.WebhookPolicy {
	c.mu.Lock()
	defer c.mu.Unlock()
	for ; len(c.policies) > 0; c.policies = c.policies[1:] {
		if p := c.policies[0]; !isReported(p) && c.result(p) == nil {
			return p
		}
	}
	return nil
}

// isReported reports whether the status contains the result for the policy's
// generation.
func isReported(p *v1alpha1.WebhookPolicy) bool {
	return p.Status.ObservedGeneration == p.Generation && p.Status.TypeChecking != nil
}

// check returns the warnings for a policy, none if it cannot be checked. The result is
// not nil, because in a status nil means not checked.
func (c *Checker) check(p *v1alpha1.WebhookPolicy, schemas resolver.SchemaResolver) (found *admissionregistrationv1.TypeChecking) {
	found = &admissionregistrationv1.TypeChecking{}
	if len(p.Spec.Validations) == 0 {
		return found
	}
	defer func() {
		if value := recover(); value != nil {
			c.log.Error(fmt.Errorf("panic: %v", value), "type checking panicked", "policy", p.Name)
		}
	}()
	checker := c.types
	checker.SchemaResolver = schemas
	for i, w := range checker.Check(native(p)) {
		if i == maxWarnings {
			break
		}
		w.Warning = truncate.String(w.Warning, maxWarning)
		found.ExpressionWarnings = append(found.ExpressionWarnings, w)
	}
	return found
}

// native returns the checked part of a policy as a ValidatingAdmissionPolicy.
func native(p *v1alpha1.WebhookPolicy) *admissionregistrationv1.ValidatingAdmissionPolicy {
	return &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: p.Name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			ParamKind:        p.Spec.ParamKind,
			MatchConstraints: p.Spec.MatchConstraints.DeepCopy(), // the checker sorts its lists
			Validations:      p.Spec.Validations,
			Variables:        p.Spec.Variables,
		},
	}
}

// sharedChecks is the number of consecutive checks that share schemas. To read a
// schema, the resolver downloads and parses the document of its API group.
const sharedChecks = 100

// once resolves each schema once.
type once struct {
	resolver resolver.SchemaResolver
	answers  map[schema.GroupVersionKind]answer
}

type answer struct {
	schema *spec.Schema
	err    error
}

// ResolveSchema implements resolver.SchemaResolver.
func (o *once) ResolveSchema(kind schema.GroupVersionKind) (*spec.Schema, error) {
	a, ok := o.answers[kind]
	if !ok {
		a.schema, a.err = o.resolver.ResolveSchema(kind)
		o.answers[kind] = a
	}
	return a.schema, a.err
}
