// Package typechecking checks the expressions of policies against the schemas of the
// resources that they match, and rehearses the policies: see internal/rehearsal. It warns
// the client that applies a policy, and the leader writes the results to its status. No
// other request waits for it.
package typechecking

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/openapi"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/internal/events"
	"github.com/ostiary/ostiary/internal/advice"
	"github.com/ostiary/ostiary/internal/panics"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/rehearsal"
	"github.com/ostiary/ostiary/internal/truncate"
	"github.com/ostiary/ostiary/internal/typecheck"
)

const (
	maxWarnings = 100     // that a status holds
	maxWarning  = 2 << 10 // bytes of one of them: what the kind has room for

	// checkTimeout bounds the check of one policy in the background.
	checkTimeout = 10 * time.Second
	// retryFirst and retryLast are the first and the last pause before policies are checked
	// again that name kinds without a schema. API servers publish the schema of a new kind
	// some seconds after its resource.
	retryFirst, retryLast = 5 * time.Second, 80 * time.Second
	// notifyAfter is the number of checks after which their results are written, while
	// others wait.
	notifyAfter = 100
)

// Resources are those that the API server serves.
type Resources interface {
	// Served returns nil while they are not known.
	Served() Served
	Subscribe(ctx context.Context) <-chan struct{}
}

// Engines know the engine of the cluster.
type Engines interface{ Engine() policy.Engine }

// Checker checks each generation of each policy once. Only the leader runs it,
// because only the leader writes the results.
type Checker struct {
	checker    *typecheck.Checker
	documents  *documents
	rehearsals *rehearsals
	resources  Resources
	engines    Engines
	log        logr.Logger
	listeners  events.Broadcaster
	wake       chan struct{}

	mu       sync.Mutex
	policies []*v1alpha1.WebhookPolicy // of the last call of Want
	results  map[types.UID]result
}

type result struct {
	generation int64
	found      *admissionregistrationv1.TypeChecking
	// rehearsed is nil if the status of the policy has the result.
	rehearsed *rehearsal.Result
	// incomplete says that the schema of a kind was not known.
	incomplete bool
	// dependent says that the result is for one engine, 0 if that is not known.
	dependent bool
	engine    policy.Engine
}

// Options configures a Checker.
type Options struct {
	Client    openapi.ClientWithContext
	Resources Resources
	Engines   Engines
	// TypeConverters and Objects apply mutations. Without them mutations are not rehearsed.
	TypeConverters policy.TypeConverters
	Objects        admission.ObjectInterfaces
	Log            logr.Logger
}

// New returns a checker that has checked nothing.
func New(o Options) *Checker {
	checker, err := typecheck.New()
	if err != nil {
		panic(err) // it depends on this program alone
	}
	return &Checker{
		checker: checker, documents: newDocuments(o.Client), resources: o.Resources, engines: o.Engines, log: o.Log,
		wake: make(chan struct{}, 1), results: map[types.UID]result{},
		rehearsals: &rehearsals{converters: o.TypeConverters, objects: o.Objects, slot: make(chan struct{}, 1)},
	}
}

// Warnings checks a policy that is being applied, on a server that serves some
// resources. When ctx ends, it returns what it has found until then.
func (c *Checker) Warnings(ctx context.Context, p *v1alpha1.WebhookPolicy, served Served) []advice.Warning {
	found, _ := c.check(ctx, p, served)
	return found
}

// Subscribe gives a channel that receives after results, until ctx ends: when
// nothing is left to be checked, and after each of many.
func (c *Checker) Subscribe(ctx context.Context) <-chan struct{} { return c.listeners.Subscribe(ctx) }

// Want sets the policies to check, and removes the results of others. It does not change
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
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Found returns the result for the generation of a policy, from this checker or from the
// status of the policy. It is nil while the policy has not been checked. After a change of
// the cluster's version, it is the previous result until the policy has been checked again.
func (c *Checker) Found(p *v1alpha1.WebhookPolicy) *admissionregistrationv1.TypeChecking {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r, ok := c.result(p); ok {
		return r.found
	}
	if isChecked(p) {
		return p.Status.TypeChecking
	}
	return nil
}

func (c *Checker) result(p *v1alpha1.WebhookPolicy) (result, bool) {
	r, ok := c.results[p.UID]
	return r, ok && r.generation == p.Generation
}

// Run checks the policies of Want one after the other, until ctx ends. Policies for
// kinds without a schema are checked again when the resources change.
func (c *Checker) Run(ctx context.Context) error {
	changed := c.resources.Subscribe(ctx)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for pause := retryFirst; ; {
		again := true
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
			pause = retryFirst
		case <-c.wake:
			pause, again = retryFirst, false
		case <-timer.C:
			pause *= 2
		}
		if c.checkAll(ctx, again) {
			c.listeners.Notify()
		}
		if pause <= retryLast {
			timer.Reset(pause)
		}
	}
}

// checkAll checks policies without a result and, with again, those with an incomplete
// result. It reports whether there was a policy to check.
func (c *Checker) checkAll(ctx context.Context, again bool) bool {
	served := c.resources.Served()
	if served == nil {
		return false // a change of the resources wakes Run
	}
	n, took := 0, time.Duration(0)
	for at := 0; ctx.Err() == nil; n++ {
		var p *v1alpha1.WebhookPolicy
		p, at = c.nextPolicy(at, again)
		if p == nil {
			break
		}
		// Half of the time is left to admission requests: after an upgrade, all policies are rehearsed.
		pauseFor(ctx, took)
		if n > 0 && n%notifyAfter == 0 {
			c.listeners.Notify()
		}
		start := time.Now()
		r := c.checkInTime(ctx, p, served)
		took = time.Since(start)
		c.mu.Lock()
		c.results[p.UID] = r
		c.mu.Unlock()
	}
	return n > 0
}

func pauseFor(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// nextPolicy returns the first policy from an index on that is to be checked, and the
// index after it.
func (c *Checker) nextPolicy(from int, again bool) (*v1alpha1.WebhookPolicy, int) {
	engine := c.engines.Engine()
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := from; i < len(c.policies); i++ {
		p := c.policies[i]
		if r, ok := c.adopted(p); !ok || (again && r.incomplete) || (r.dependent && r.engine != engine) {
			return p, i + 1
		}
	}
	return nil, 0
}

// adopted is the result for a policy. One that is only in its status is kept, without an
// engine: a status does not say for which version it was written.
func (c *Checker) adopted(p *v1alpha1.WebhookPolicy) (result, bool) {
	r, ok := c.result(p)
	if !ok && isStored(p) {
		r, ok = result{generation: p.Generation, found: p.Status.TypeChecking, dependent: typecheck.DependsOnEngine(p)}, true
		c.results[p.UID] = r
	}
	return r, ok
}

// isStored reports whether the status of a policy contains all results for its generation. Those
// of earlier versions of Ostiary do not have that of the rehearsal.
func isStored(p *v1alpha1.WebhookPolicy) bool { return isChecked(p) && isRehearsed(p) }

// isChecked reports whether the status contains the result of the check of types.
func isChecked(p *v1alpha1.WebhookPolicy) bool {
	return p.Status.ObservedGeneration == p.Generation && p.Status.TypeChecking != nil
}

// checkInTime never fails: what cannot be checked has no warnings. The result is not
// nil, so that a status tells a policy without warnings from one that is not checked.
func (c *Checker) checkInTime(ctx context.Context, p *v1alpha1.WebhookPolicy, served Served) result {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	engine := c.engines.Engine() // first, so that it is never newer than the result
	found, complete := c.check(ctx, p, served)
	out := &admissionregistrationv1.TypeChecking{}
	for _, w := range found[:min(len(found), maxWarnings)] {
		out.ExpressionWarnings = append(out.ExpressionWarnings, admissionregistrationv1.ExpressionWarning{
			FieldRef: w.Field, Warning: truncate.String(w.Text, maxWarning),
		})
	}
	rehearsed := c.rehearse(ctx, p, served, found)
	return result{generation: p.Generation, found: out, rehearsed: &rehearsed, incomplete: !complete,
		dependent: typecheck.DependsOnEngine(p), engine: engine}
}

// check returns the warnings about a policy. They are complete if the schema of each
// kind was read.
func (c *Checker) check(ctx context.Context, p *v1alpha1.WebhookPolicy, served Served) (found []advice.Warning, complete bool) {
	defer func() {
		if value := recover(); value != nil {
			c.log.Error(panics.Error(value), "type checking panicked", "policy", p.Name)
			found, complete = nil, true
		}
	}()
	if !hasExpressions(&p.Spec) {
		return nil, true
	}
	named, all := typecheck.KindsOf(p, served)
	kinds, read := c.known(ctx, named...)
	params, readParams := c.params(ctx, p)
	stored, readStored := c.known(ctx, typecheck.StoredKindsOf(p, served)...)
	others := typecheck.Others{Params: params, Stored: stored}
	found = append(c.checker.Versions(p, c.engines.Engine()), c.checker.Check(ctx, p, kinds, others)...)
	return found, all && read && readParams && readStored
}

func hasExpressions(spec *v1alpha1.WebhookPolicySpec) bool {
	return len(spec.Validations)+len(spec.Variables)+len(spec.MatchConditions)+len(spec.AuditAnnotations)+len(spec.Mutations) > 0
}
