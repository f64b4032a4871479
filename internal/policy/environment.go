package policy

import (
	"context"
	"errors"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Environment is what an evaluation needs of the process around it. Whatever is left
// out is an error of the policies that need it.
type Environment struct {
	Namespaces Namespaces
	// Params finds what policies read as params.
	Params Params
	// ParamKinds checks that a paramKind exists; nil checks nothing.
	ParamKinds ParamKinds
	// Listed finds what plugins list. It may find more than Params.
	Listed Params
	// Matcher matches the matchResources of bindings; *matching.Matcher is one.
	Matcher Matcher
	// Authorizer answers for the CEL variable authorizer, within the request's
	// context. Its answers are kept for the length of one request.
	Authorizer authorizer.UnconditionalAuthorizer
	// BreakGlass lets users skip any policy that RBAC allows them to, not only
	// those that say so.
	BreakGlass bool
	// TypeConverters know the schemas of the kinds that are mutated.
	TypeConverters TypeConverters
	// Objects know the Go types of kinds, and which resources are equivalent.
	Objects admission.ObjectInterfaces
	// Kinds knows the resources of kinds, for plugins.
	Kinds Kinds
	// Images knows the backends that decide about images, for the plugin that asks
	// them.
	Images Images
	// Pods lists Pods, for plugins.
	Pods Pods
	Now  func() time.Time
	// Observe is told of each policy's evaluation; nil is allowed.
	Observe func(policy string, operation admissionv1.Operation, decision Decision, elapsed time.Duration)
	// Recheck says how some changes are checked; nil is not at all.
	Recheck *Recheck
	// Panicked is told of each panic in a policy's evaluation; nil is allowed.
	Panicked func(PanicReport)
}

// Namespaces finds the namespace of a request, as the CEL variable
// namespaceObject shows it. It returns an error where there is none.
type Namespaces interface {
	GetNamespace(ctx context.Context, name string) (*corev1.Namespace, error)
}

// Pods lists the Pods of a namespace, and says how many more there are than it
// lists. It asks the API server, within the time of ctx: it is for what happens
// rarely.
type Pods interface {
	PodsIn(ctx context.Context, namespace string) (pods []*corev1.Pod, more int64, err error)
}

// Params finds the objects that a binding's paramRef names, for a request in a
// namespace, in a stable order, each with its apiVersion and kind. A single nil
// means that the binding is evaluated without params; none at all, that it is
// not evaluated.
type Params interface {
	Params(ctx context.Context, kind *admissionregistrationv1.ParamKind, ref *admissionregistrationv1.ParamRef, namespace string) ([]runtime.Object, error)
}

// ParamKinds returns an error for a kind that the API server does not have. As in the API
// server, failurePolicy then decides about every request that the policy matches, whether
// its bindings have a paramRef or not.
type ParamKinds interface {
	CheckKind(ctx context.Context, kind *admissionregistrationv1.ParamKind) error
}

// Matcher tells whether a request matches a binding.
type Matcher interface {
	Matches(attr admission.Attributes, o admission.ObjectInterfaces, criteria matching.MatchCriteria) (bool, schema.GroupVersionResource, schema.GroupVersionKind, error)
}

// TypeConverters find the schema of a kind; nil means that it is not known.
type TypeConverters interface {
	GetTypeConverter(gvk schema.GroupVersionKind) managedfields.TypeConverter
}

// authorizerOf is the host's, or one that answers every question with an error.
func (h Environment) authorizerOf() authorizer.UnconditionalAuthorizer {
	if h.Authorizer != nil {
		return h.Authorizer
	}
	return authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return authorizer.DecisionNoOpinion, "", &AuthorizerUnavailableError{errors.New("no authorizer is available")}
	})
}
