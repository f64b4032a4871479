// Package audit evaluates policies on stored objects.
package audit

import (
	"cmp"
	"context"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/ptr"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/guard"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/rollout"
	"github.com/ostiary/ostiary/internal/truncate"
)

// maxTime limits the evaluation of one policy on one object, besides its cost budget. It
// is the longest time that an API server waits for an answer.
const maxTime = 30 * time.Second

// Object is a stored object.
type Object struct {
	Resource schema.GroupVersionResource
	Kind     schema.GroupVersionKind
	// Namespace is empty for a cluster-scoped object. That of a Namespace is its own name.
	Namespace, Name string
	// JSON is the object with apiVersion and kind.
	JSON []byte
	// IsDeleted means that the object is being deleted.
	IsDeleted bool
	// KeepsStatus means that a new object keeps its status, because its resource has no
	// subresource for it. Built-in kinds do not need it.
	KeepsStatus bool
	// Decoded keeps what Evaluators have decoded; nil decodes the object for each of them.
	Decoded *Decoded

	updated, created *admissionv1.AdmissionRequest // as soon as a policy is evaluated
}

// maxController limits the text about a controller, in bytes. API servers do not limit its name.
const maxController = 317 // a kind of 63 bytes and a name of 253

// ControllerOf returns the kind and name of the controller of an object, as "ReplicaSet/web-7d9",
// without sharing memory with the object; "" if it has none.
func ControllerOf(o metav1.Object) string {
	owner := metav1.GetControllerOfNoCopy(o)
	if owner == nil {
		return ""
	}
	return truncate.String(owner.Kind+"/"+owner.Name, maxController)
}

// Decoded is an object that several Evaluators evaluate one after the other. It is decoded
// once, with the parts that they have read of earlier objects. The zero value is ready for
// use, by one goroutine.
type Decoded struct{ updated, created policy.StoredObject }

// Next forgets the object, but not which parts are read.
func (d *Decoded) Next() {
	d.updated.Next()
	d.created.Next()
}

// Result is the result of a policy for a stored object.
type Result struct {
	policy.Audited
	// Operation is CREATE for a result that is only about a new object with the same content,
	// otherwise UPDATE.
	Operation admissionv1.Operation
	// Workload describes the workload, as "Deployment shop/web", whose new Pods the policy denies:
	// the object, or the controller of a Pod; empty if there is none.
	Workload string
}

// IsFinding reports whether the object fails a validation from which it is not excepted, or its
// evaluation ends with an error.
func (r Result) IsFinding() bool {
	return slices.ContainsFunc(r.Violations, func(v policy.Violation) bool { return v.Exception == nil })
}

// Evaluator evaluates one policy on stored objects, as admission evaluates an update that
// changes nothing by an anonymous user, and then the creation of such an object. It is
// immutable.
type Evaluator struct {
	auditor     *policy.Auditor
	spec        *v1alpha1.WebhookPolicySpec
	exempt      []string
	decidesAnew bool
	deniesPods  bool // it denies, and its rules match CREATE of Pods
}

// NewEvaluator returns an evaluator for the policy that c was compiled from. Policies do not
// apply to the exempt namespaces; native policies have none.
func NewEvaluator(p *v1alpha1.WebhookPolicy, c *policy.Compiled, exempt []string) *Evaluator {
	return &Evaluator{
		auditor: policy.NewAuditor(p, c), spec: &p.Spec, exempt: exempt,
		decidesAnew: c.DecidesAnew(),
		deniesPods:  rollout.InEffect(p).Spec.Denies() && p.Spec.TemplateOperation() == admissionregistrationv1.Create,
	}
}

// Evaluate evaluates the policy. It is not safe for concurrent use with the same Object. The
// result is DecisionUnmatched for an object that the policy does not match, such as one in an
// exempt namespace, and for one that is being deleted.
//
// The object is evaluated as a new one only if the update finds nothing, and if the policy can
// decide about it in another way.
func (e *Evaluator) Evaluate(ctx context.Context, o *Object, host policy.Environment) Result {
	if o.IsDeleted || guard.Excludes(e.spec, o.Resource.GroupResource(), o.Namespace, e.exempt) {
		return Result{Audited: policy.Audited{Decision: policy.DecisionUnmatched}, Operation: admissionv1.Update}
	}
	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	decoded := cmp.Or(o.Decoded, &Decoded{})
	host.Stored = &decoded.updated
	updated := Result{Audited: e.auditor.Evaluate(ctx, o.update(), host), Operation: admissionv1.Update}
	// The Pod of a workload is created again, also if its update is a finding.
	isPod := e.deniesPods && o.Kind == podKind()
	if updated.isMatched() && !e.decidesAnew || updated.IsFinding() && !isPod {
		return o.withWorkload(updated, updated.DeniesPods || isPod && updated.Denied)
	}
	host.Stored = &decoded.created
	host.Stored.Renew = o.renew(host.Now())
	created := Result{Audited: e.auditor.Evaluate(ctx, o.create(), host), Operation: admissionv1.Create}
	deniesPods := created.DeniesPods || isPod && created.Denied
	shareChange(&updated, &created)
	if updated.IsFinding() || updated.isMatched() && !created.IsFinding() {
		return o.withWorkload(updated, deniesPods)
	}
	return o.withWorkload(created, deniesPods)
}

// shareChange makes both results say whether mutations would change the object in one of the requests.
func shareChange(a, b *Result) {
	a.WouldChange = a.WouldChange || b.WouldChange
	b.WouldChange = a.WouldChange
}

// isMatched reports whether the policy applies to the object. It does if there is a finding.
func (r Result) isMatched() bool {
	return r.IsFinding() || r.Decision != policy.DecisionUnmatched && r.Decision != policy.DecisionSkip
}

// withWorkload adds the workload of the object if its new Pods are denied.
func (o *Object) withWorkload(r Result, deniesPods bool) Result {
	if deniesPods {
		r.Workload = o.workload()
	}
	return r
}

// update returns the request for an update that changes nothing.
func (o *Object) update() *admissionv1.AdmissionRequest {
	if o.updated == nil {
		o.updated = o.request(admissionv1.Update)
		o.updated.OldObject = runtime.RawExtension{Raw: o.JSON}
	}
	return o.updated
}

// create returns the request for the creation of the object.
func (o *Object) create() *admissionv1.AdmissionRequest {
	if o.created == nil {
		o.created = o.request(admissionv1.Create)
	}
	return o.created
}

func (o *Object) request(operation admissionv1.Operation) *admissionv1.AdmissionRequest {
	kind, resource := metav1.GroupVersionKind(o.Kind), metav1.GroupVersionResource(o.Resource)
	options := "UpdateOptions"
	if operation == admissionv1.Create {
		options = "CreateOptions"
	}
	return &admissionv1.AdmissionRequest{
		Kind: kind, Resource: resource, RequestKind: &kind, RequestResource: &resource,
		Name: o.Name, Namespace: o.Namespace, Operation: operation,
		UserInfo: authenticationv1.UserInfo{Username: user.Anonymous, Groups: []string{user.AllUnauthenticated}},
		Object:   runtime.RawExtension{Raw: o.JSON},
		DryRun:   ptr.To(true),
		Options:  runtime.RawExtension{Raw: []byte(`{"apiVersion":"meta.k8s.io/v1","kind":"` + options + `","dryRun":["All"]}`)},
	}
}
