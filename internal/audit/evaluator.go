// Package audit evaluates policies on stored objects.
package audit

import (
	"context"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/ptr"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/guard"
	"github.com/ostiary/ostiary/internal/policy"
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

	admission *admissionv1.AdmissionRequest // as soon as a policy is evaluated
}

// Evaluator evaluates one policy on stored objects, as admission evaluates an update that
// changes nothing by an anonymous user. It is immutable.
type Evaluator struct {
	auditor *policy.Auditor
	spec    *v1alpha1.WebhookPolicySpec
	exempt  []string
}

// NewEvaluator returns an evaluator for the policy that c was compiled from. Policies do not
// apply to the exempt namespaces; native policies have none.
func NewEvaluator(p *v1alpha1.WebhookPolicy, c *policy.Compiled, exempt []string) *Evaluator {
	return &Evaluator{auditor: policy.NewAuditor(p, c), spec: &p.Spec, exempt: exempt}
}

// Evaluate evaluates the policy. It is not safe for concurrent use with the same Object. The result is DecisionUnmatched for an object that the
// policy does not match, such as one in an exempt namespace.
func (e *Evaluator) Evaluate(ctx context.Context, o *Object, host policy.Environment) policy.Audited {
	if guard.Excludes(e.spec, o.Resource.GroupResource(), o.Namespace, e.exempt) {
		return policy.Audited{Decision: policy.DecisionUnmatched}
	}
	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	return e.auditor.Evaluate(ctx, o.request(), host)
}

// request returns the request for an update that changes nothing.
func (o *Object) request() *admissionv1.AdmissionRequest {
	if o.admission != nil {
		return o.admission
	}
	kind, resource := metav1.GroupVersionKind(o.Kind), metav1.GroupVersionResource(o.Resource)
	o.admission = &admissionv1.AdmissionRequest{
		Kind: kind, Resource: resource, RequestKind: &kind, RequestResource: &resource,
		Name: o.Name, Namespace: o.Namespace, Operation: admissionv1.Update,
		UserInfo: authenticationv1.UserInfo{Username: user.Anonymous, Groups: []string{user.AllUnauthenticated}},
		Object:   runtime.RawExtension{Raw: o.JSON}, OldObject: runtime.RawExtension{Raw: o.JSON},
		DryRun:  ptr.To(true),
		Options: runtime.RawExtension{Raw: []byte(`{"apiVersion":"meta.k8s.io/v1","kind":"UpdateOptions","dryRun":["All"]}`)},
	}
	return o.admission
}
