// Package policyvalidator answers the admission calls about WebhookPolicies themselves:
// what cannot be in force is refused when it is applied, and what is risky gets
// a warning. The loader checks again, so no call has to be answered.
package policyvalidator

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/egress"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/validation"
)

// waiting bounds the calls that wait for their turn to compile. Each holds its
// body, of up to 10 MiB, and the decoded policy, so they are few: policies are
// applied one by one, or by a handful of clients. Others are told to try again,
// which API servers do within the timeout.
const waiting = 4

// Resources know what the API server serves. Nil is allowed as an answer.
type Resources interface {
	// Served is what is known without asking.
	Served() map[schema.GroupVersion][]metav1.APIResource
	// ServedNow is what the API server answers.
	ServedNow(ctx context.Context) map[schema.GroupVersion][]metav1.APIResource
}

// Reviewer reviews policies. It is safe for concurrent use.
type Reviewer struct {
	compiler  func() *policy.Compiler
	resources Resources
	replicas  func() int
	backends  egress.Rule
	log       logr.Logger
	limits    *limits
	checks    []Check

	accepted  chan struct{} // those that compile, and those that wait for it
	compiling chan struct{}
}

// New makes a reviewer. Compiler returns the current compiler. Replicas says how many replicas answer calls, 0 where
// that is not known. The checks add warnings about valid policies.
func New(compiler func() *policy.Compiler, resources Resources, replicas func() int, backends egress.Rule, log logr.Logger, checks ...Check) *Reviewer {
	limits, err := readLimits()
	if err != nil {
		panic(err) // it depends on this program alone
	}
	return &Reviewer{
		compiler: compiler, resources: resources, replicas: replicas, backends: backends, log: log, limits: limits, checks: checks,
		// One at a time: compiling takes a processor and memory from those who wait
		// for the answer of a policy.
		accepted: make(chan struct{}, 1+waiting), compiling: make(chan struct{}, 1),
	}
}

// Facts are what is known of the cluster without asking.
func (r *Reviewer) Facts() validation.ClusterInfo {
	return validation.ClusterInfo{Replicas: r.replicas(), Resources: r.resources.Served(), Backends: r.backends}
}

// Review answers one call. An error means that there is no answer.
func (r *Reviewer) Review(ctx context.Context, request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	beyond, before := r.limits.check(request.Object.Raw), r.limits.check(request.OldObject.Raw)
	switch {
	case beyond != nil && before != nil:
		// A policy that was stored under other limits can still be labelled and
		// deleted. The loader judges it.
		return &admissionv1.AdmissionResponse{Allowed: true}, nil //nolint:nilerr // the answer is in the response
	case beyond != nil:
		named := &v1alpha1.WebhookPolicy{ObjectMeta: metav1.ObjectMeta{Name: request.Name}}
		return &admissionv1.AdmissionResponse{Result: refusal(named, field.ErrorList{beyond})}, nil
	case before != nil:
		// The two differ, since one of them is within the limits. The old one is
		// not worth decoding.
		created := *request
		created.Operation = admissionv1.Create
		request = &created
	}
	p, err := changed(request)
	if err != nil {
		return nil, err
	}
	if p == nil {
		return &admissionv1.AdmissionResponse{Allowed: true}, nil
	}
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
	// Compiling cannot be broken off. Who waits for it may give up, but its
	// place is taken until it has ended.
	result := make(chan answer, 1)
	go func() {
		defer func() { <-r.compiling; <-r.accepted }()
		result <- r.review(ctx, p)
	}()
	select {
	case a := <-result:
		return a.response, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type answer struct {
	response *admissionv1.AdmissionResponse
	err      error
}

func (r *Reviewer) review(ctx context.Context, p *v1alpha1.WebhookPolicy) (a answer) {
	defer func() {
		if value := recover(); value != nil {
			r.log.Error(fmt.Errorf("panic: %v", value), "reviewing a policy panicked", "policy", p.Name, "stack", string(debug.Stack()))
			a = answer{err: errors.New("reviewing the policy panicked")}
		}
	}()
	facts := r.Facts()
	if validation.Unserved(p, facts) {
		facts.Resources = r.servedNow(ctx)
	}
	errs, warnings := validation.Review(r.compiler(), p, facts)
	if len(errs) > 0 {
		return answer{response: &admissionv1.AdmissionResponse{Result: refusal(p, errs)}}
	}
	warnings = append(r.check(ctx, p, facts.Resources), warnings...)
	return answer{response: &admissionv1.AdmissionResponse{Allowed: true, Warnings: validation.Bounded(warnings)}}
}

// servedNow is nil if the API server does not answer in time.
func (r *Reviewer) servedNow(ctx context.Context) Served {
	ctx, cancel := context.WithTimeout(ctx, discoverWithin)
	defer cancel()
	return r.resources.ServedNow(ctx)
}

// changed is the policy to review, nil where there is nothing to say: its spec
// stays as it is, or it is being deleted. So what is stored can always be
// labelled, let go of by its finalizers, and deleted, whatever is wrong with it.
func changed(request *admissionv1.AdmissionRequest) (*v1alpha1.WebhookPolicy, error) {
	if kind := schema.GroupVersionKind(request.Kind); kind != v1alpha1.GroupVersion.WithKind("WebhookPolicy") || request.SubResource != "" {
		return nil, &UnexpectedError{What: fmt.Sprintf("a request for %s %s", kind, request.SubResource)}
	}
	if request.Operation != admissionv1.Create && request.Operation != admissionv1.Update {
		return nil, nil
	}
	p, err := decode("object", request.Object.Raw)
	if err != nil || p.DeletionTimestamp != nil {
		return nil, err
	}
	if request.Operation == admissionv1.Update {
		before, err := decode("oldObject", request.OldObject.Raw)
		if err != nil || equality.Semantic.DeepEqual(before.Spec, p.Spec) {
			return nil, err
		}
	}
	return p, nil
}

func decode(what string, raw []byte) (*v1alpha1.WebhookPolicy, error) {
	p := &v1alpha1.WebhookPolicy{}
	if err := json.Unmarshal(raw, p); err != nil {
		return nil, &policy.MalformedError{What: "request." + what, Err: err}
	}
	return p, nil
}

// UnexpectedError says that the call is for something else than a policy.
type UnexpectedError struct{ What string }

// Error implements error.
func (e *UnexpectedError) Error() string {
	return "only WebhookPolicies are reviewed here; found: " + e.What
}

// BadRequest tells the server that the caller is at fault.
func (e *UnexpectedError) BadRequest() bool { return true }

// BusyError says that too many policies are being reviewed.
type BusyError struct{}

// Error implements error.
func (*BusyError) Error() string { return "too many policies are being reviewed" }

// RetryAfter tells the server to ask for another try, which the API server
// makes within the webhook's timeout, perhaps at another replica.
func (*BusyError) RetryAfter() time.Duration { return time.Second }
