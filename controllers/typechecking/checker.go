// Package typechecking checks the expressions of policies against the schemas
// of the resources that they match, as the API server does for its own
// policies. What it finds are warnings; no request waits for it.
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
	maxWarnings = 100     // that a status holds
	maxWarning  = 2 << 10 // bytes of one of them: what the kind has room for
)

// Checker checks each generation of each policy once. Only the leader runs it,
// since only the leader writes what it finds.
type Checker struct {
	types     validating.TypeChecker
	log       logr.Logger
	listeners events.Broadcaster
	wake      events.Signal

	mu       sync.Mutex
	policies []*v1alpha1.WebhookPolicy // that may have to be checked yet
	results  map[types.UID]result
}

type result struct {
	generation int64
	found      *admissionregistrationv1.TypeChecking
}

// New makes a checker that has checked nothing.
func New(t validating.TypeChecker, log logr.Logger) *Checker {
	return &Checker{types: t, log: log, wake: events.NewSignal(), results: map[types.UID]result{}}
}

// Subscribe gives a channel that receives after results, until ctx ends: when
// nothing is left to be checked, and after each of many.
func (c *Checker) Subscribe(ctx context.Context) <-chan struct{} { return c.listeners.Subscribe(ctx) }

// Want has these policies checked, and forgets what was found for others. The
// policies are not changed.
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

// Found is what has been found for a policy's generation: in its status already,
// or by this checker. It is nil while the policy has not been checked.
func (c *Checker) Found(p *v1alpha1.WebhookPolicy) *admissionregistrationv1.TypeChecking {
	if stands(p) {
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

// Run checks what is wanted, one policy after another, until ctx ends.
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

// checkAll reports whether there was anything to check.
func (c *Checker) checkAll(ctx context.Context) bool {
	var schemas *once
	n := 0
	for ; ctx.Err() == nil; n++ {
		p := c.next()
		if p == nil {
			break
		}
		if n%shareFor == 0 {
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

// next is a policy that has not been checked. Those that have been are not
// looked at again until others are wanted.
func (c *Checker) next() *v1alpha1.WebhookPolicy {
	c.mu.Lock()
	defer c.mu.Unlock()
	for ; len(c.policies) > 0; c.policies = c.policies[1:] {
		if p := c.policies[0]; !stands(p) && c.result(p) == nil {
			return p
		}
	}
	return nil
}

// stands reports whether what was found for a policy's generation is in its
// status.
func stands(p *v1alpha1.WebhookPolicy) bool {
	return p.Status.ObservedGeneration == p.Generation && p.Status.TypeChecking != nil
}

// check never fails: what cannot be checked has no warnings. It is not nil, so
// that a status tells a policy without warnings from one that is not checked.
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

// native is the part of a policy that is checked, in the API server's own form.
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

// shareFor is how many checks in a row share the schemas that were read: to read
// one means to fetch and parse a document of its whole API group.
const shareFor = 100

// once asks for each schema once.
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
