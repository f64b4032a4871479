// Package policyvalidator answers the admission calls for WebhookPolicies: it rejects
// invalid policies and warns about risky ones when they are applied. The loader checks
// again, so no call has to be answered.
package policyvalidator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/advice"
	"github.com/ostiary/ostiary/internal/egress"
	"github.com/ostiary/ostiary/internal/panics"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/validation"
)

// waiting is the maximum of calls that wait to compile a policy. Each holds a body of up
// to 10 MiB and the decoded policy. Others get 503, and API servers retry within the
// timeout.
const waiting = 4

// Resources finds the resources of the API server. The result can be nil.
type Resources interface {
	// Served returns the known resources without a call.
	Served() map[schema.GroupVersion][]metav1.APIResource
	// ServedNow asks the API server.
	ServedNow(ctx context.Context) map[schema.GroupVersion][]metav1.APIResource
}

// Reviewer reviews policies. It is safe for concurrent use.
type Reviewer struct {
	compiler  func() *policy.Compiler
	resources Resources
	replicas  func() int
	backends  egress.Rule
	log       logr.Logger
	limits    *validation.Limits
	checks    []Check
	impact    *Impact // nil for none
	// Rehearse evaluates a valid policy before requests do; nil for none. It answers in time.
	Rehearse Rehearsal

	accepted  chan struct{} // compiling and waiting calls
	compiling chan struct{}
}

// New returns a Reviewer. compiler returns the current compiler, and replicas the number of
// live replicas, 0 if unknown. The impact and the checks add warnings about valid policies;
// the impact may be nil.
func New(compiler func() *policy.Compiler, resources Resources, replicas func() int, backends egress.Rule,
	log logr.Logger, impact *Impact, checks ...Check) *Reviewer {
	limits, err := validation.ReadLimits()
	if err != nil {
		panic(err) // it depends on this program alone
	}
	return &Reviewer{
		compiler: compiler, resources: resources, replicas: replicas, backends: backends, log: log, limits: limits,
		checks: checks, impact: impact,
		// One at a time: a compilation takes a processor and memory from admission
		// requests.
		accepted: make(chan struct{}, 1+waiting), compiling: make(chan struct{}, 1),
	}
}

// Facts returns the known facts about the cluster without a call.
func (r *Reviewer) Facts() validation.ClusterInfo {
	return validation.ClusterInfo{Replicas: r.replicas(), Resources: r.resources.Served(), Backends: r.backends, Now: time.Now()}
}

// Review answers one call. An error means that there is no answer.
func (r *Reviewer) Review(ctx context.Context, request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	beyond, before := r.limits.Check(request.Object.Raw), r.limits.Check(request.OldObject.Raw)
	switch {
	case beyond != nil && before != nil:
		// A policy that was stored with other limits can still be labelled and deleted.
		// The loader validates it.
		return &admissionv1.AdmissionResponse{Allowed: true}, nil //nolint:nilerr // the answer is in the response
	case beyond != nil:
		named := &v1alpha1.WebhookPolicy{ObjectMeta: metav1.ObjectMeta{Name: request.Name}}
		return &admissionv1.AdmissionResponse{Result: refusal(named, field.ErrorList{beyond})}, nil
	case before != nil:
		// The two differ, because the new one is within the limits. The old one need not
		// be decoded.
		created := *request
		created.Operation = admissionv1.Create
		request = &created
	}
	p, old, err := changed(request)
	if err != nil {
		return nil, err
	}
	if p == nil || old != nil && equality.Semantic.DeepEqual(old.Spec, p.Spec) { // a policy with errors can be suspended, too
		return &admissionv1.AdmissionResponse{Allowed: true, Warnings: validation.AnnotationWarnings(p, time.Now())}, nil
	}
	return r.reviewChange(ctx, p, old, request.UserInfo)
}

// reviewChange reviews a new policy, or one whose spec changes.
func (r *Reviewer) reviewChange(
	ctx context.Context, p, old *v1alpha1.WebhookPolicy, author authenticationv1.UserInfo,
) (*admissionv1.AdmissionResponse, error) {
	select {
	case r.accepted <- struct{}{}:
	default:
		return nil, &BusyError{}
	}
	select {
	case r.compiling <- struct{}{}:
	case <-ctx.Done():
		<-r.accepted
		return nil, ctx.Err()
	}
	// A compilation cannot be interrupted. It keeps its slot until it ends, also if the
	// caller gives up.
	result := make(chan answer, 1)
	go func() {
		defer func() { <-r.compiling; <-r.accepted }()
		result <- r.review(ctx, p)
	}()
	select {
	case a := <-result:
		if a.err != nil || !a.response.Allowed {
			return a.response, a.err
		}
		warnings := r.warningsAbout(ctx, p, old, author, a)
		return &admissionv1.AdmissionResponse{Allowed: true, Warnings: validation.Bounded(warnings)}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// warningsAbout returns the warnings about a valid policy. It is rehearsed while its impact is
// computed.
func (r *Reviewer) warningsAbout(
	ctx context.Context, p, old *v1alpha1.WebhookPolicy, author authenticationv1.UserInfo, a answer,
) []advice.Warning {
	findings := make(chan []advice.Warning, 1)
	go func() { findings <- r.rehearse(ctx, p, a) }()
	warnings, passes := r.impactOf(ctx, p, old, author, a)
	found := <-findings
	if passes {
		found = slices.DeleteFunc(found, func(w advice.Warning) bool { return w.Kind == advice.DeniesAll })
	}
	return slices.Concat(warnings, a.found, a.risks, found)
}

// impactOf returns the warnings about the impact of a valid policy, and whether it allows a stored
// object. The policy no longer holds a slot, so that others are reviewed in the meantime.
func (r *Reviewer) impactOf(ctx context.Context, p, old *v1alpha1.WebhookPolicy, author authenticationv1.UserInfo,
	a answer) (warnings []advice.Warning, passes bool) {
	isChanged := changesDecisions(old, p)
	if r.impact == nil || !isChanged || !denies(p) && !p.Spec.Audits() {
		return nil, false
	}
	warnings = r.run(ctx, func(ctx context.Context, p *v1alpha1.WebhookPolicy, served Served) []advice.Warning {
		if !denies(p) {
			return advice.General(r.impact.uncounted(ctx, p, a.compiled, served))
		}
		var found []string
		found, passes = r.impact.warnings(ctx, p, author, a.compiled, served)
		return advice.General(found)
	}, p, a.served)
	return warnings, passes
}

// rehearse returns the findings about a valid policy. Like impactOf, it holds no slot.
func (r *Reviewer) rehearse(ctx context.Context, p *v1alpha1.WebhookPolicy, a answer) []advice.Warning {
	switch {
	case r.Rehearse == nil:
		return nil
	case a.served == nil:
		return []advice.Warning{{Text: "not rehearsed: the resources of the API server are not known yet"}}
	}
	return r.run(ctx, func(ctx context.Context, p *v1alpha1.WebhookPolicy, served Served) []advice.Warning {
		return r.Rehearse(ctx, p, served, a.found)
	}, p.DeepCopy(), a.served)
}

// answer is the result of a review, without warnings.
type answer struct {
	response *admissionv1.AdmissionResponse
	err      error
	compiled *policy.Compiled
	served   Served
	found    []advice.Warning // by the checks
	risks    []advice.Warning
}

func (r *Reviewer) review(ctx context.Context, p *v1alpha1.WebhookPolicy) (a answer) {
	defer func() {
		if value := recover(); value != nil {
			r.log.Error(panics.Error(value), "reviewing a policy panicked", "policy", p.Name, "stack", string(debug.Stack()))
			a = answer{err: errors.New("reviewing the policy panicked")}
		}
	}()
	facts := r.Facts()
	if validation.Unserved(p, facts) {
		facts.Resources = r.servedNow(ctx)
	}
	v, risks := validation.Review(r.compiler(), p, facts)
	if len(v.Errors) > 0 {
		return answer{response: &admissionv1.AdmissionResponse{Result: refusal(p, v.Errors)}}
	}
	found := r.check(ctx, p, facts.Resources)
	allowed := &admissionv1.AdmissionResponse{Allowed: true}
	return answer{response: allowed, compiled: v.Compiled, served: facts.Resources, found: found, risks: risks}
}

// servedNow returns nil if the API server does not answer in time.
func (r *Reviewer) servedNow(ctx context.Context) Served {
	ctx, cancel := context.WithTimeout(ctx, discoverWithin)
	defer cancel()
	return r.resources.ServedNow(ctx)
}

// changed returns the policy to review, nil if neither spec nor annotations change or it is being
// deleted, and the policy before the change, nil for a new one. A stored policy can
// therefore always be labelled, lose its finalizers, and be deleted.
func changed(request *admissionv1.AdmissionRequest) (p, before *v1alpha1.WebhookPolicy, err error) {
	if kind := schema.GroupVersionKind(request.Kind); kind != v1alpha1.GroupVersion.WithKind("WebhookPolicy") || request.SubResource != "" {
		return nil, nil, &UnexpectedError{What: fmt.Sprintf("a request for %s %s", kind, request.SubResource)}
	}
	if request.Operation != admissionv1.Create && request.Operation != admissionv1.Update {
		return nil, nil, nil
	}
	p, err = decode("object", request.Object.Raw)
	if err != nil || p.DeletionTimestamp != nil {
		return nil, nil, err
	}
	if request.Operation == admissionv1.Update {
		before, err = decode("oldObject", request.OldObject.Raw)
		if err != nil || equality.Semantic.DeepEqual(before.Spec, p.Spec) && maps.Equal(before.Annotations, p.Annotations) {
			return nil, nil, err
		}
	}
	return p, before, nil
}

func decode(what string, raw []byte) (*v1alpha1.WebhookPolicy, error) {
	p := &v1alpha1.WebhookPolicy{}
	if err := json.Unmarshal(raw, p); err != nil {
		return nil, &policy.MalformedError{What: "request." + what, Err: err}
	}
	return p, nil
}

// UnexpectedError is the error for a call about another resource.
type UnexpectedError struct{ What string }

// Error implements error.
func (e *UnexpectedError) Error() string {
	return "only WebhookPolicies are reviewed here; found: " + e.What
}

// BadRequest marks errors that the caller causes.
func (e *UnexpectedError) BadRequest() bool { return true }

// BusyError means that too many policies are being reviewed.
type BusyError struct{}

// Error implements error.
func (*BusyError) Error() string { return "too many policies are being reviewed" }

// RetryAfter is the delay before another attempt, which the API server makes within the
// timeout, possibly at another replica.
func (*BusyError) RetryAfter() time.Duration { return time.Second }
