package policy

import (
	"context"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/ostiary/ostiary/internal/exceptions"
	"github.com/ostiary/ostiary/internal/lookups"
	"github.com/ostiary/ostiary/internal/matchresources"
	"github.com/ostiary/ostiary/internal/pluginapi"
)

// Environment contains what evaluations need of the process. Policies that need a missing
// part fail with an error.
type Environment struct {
	Namespaces pluginapi.Namespaces
	// Params finds the objects of a paramRef for a request in a namespace, in a stable
	// order, with apiVersion and kind. A single nil means an evaluation without params;
	// no object means no evaluation.
	Params Params
	// ParamKinds checks that a paramKind exists; nil disables the check.
	ParamKinds ParamKinds
	// Listed finds the objects that plugins list, which can be of more kinds than params.
	Listed Params
	// Lookups find stored objects for the CEL variable lookups.
	Lookups Lookups
	// Matcher matches the matchResources of bindings, such as a *matching.Matcher.
	Matcher matchresources.Matcher
	// Authorizer decides for the CEL variable authorizer, with the context of the
	// request. Decisions are kept for the duration of a request.
	Authorizer authorizer.UnconditionalAuthorizer
	// BreakGlass permits users with the verb breakglass to skip every policy, not only
	// those with breakGlass.
	BreakGlass bool
	// TypeConverters finds the schema of a kind; nil means that it is not known.
	TypeConverters TypeConverters
	// Objects finds the Go types of kinds and equivalent resources.
	Objects admission.ObjectInterfaces
	// Kinds finds the resources of kinds, for plugins.
	Kinds pluginapi.Kinds
	// Images finds the backends of the plugin ImagePolicyWebhook.
	Images pluginapi.Images
	// Pods lists Pods, for plugins.
	Pods pluginapi.Pods
	Now  func() time.Time
	// Pause is called between the steps of an evaluation, so that other requests can be evaluated meanwhile; nil is
	// allowed. It returns when the evaluation may continue, or when ctx ends.
	Pause func(ctx context.Context)
	// Observe gets the decision of each policy; nil is allowed.
	Observe func(policy string, operation admissionv1.Operation, decision Decision, elapsed time.Duration)
	// Evaluated gets, for each call of the validating phase, how many policies the batch evaluated
	// and how many were evaluated alone; nil is allowed.
	Evaluated func(batch, alone int)
	// Failed gets each named validation that is false for a request; nil is allowed.
	Failed func(policy, validation string)
	// Exceptions find the exceptions from policies that permit them; nil has none.
	Exceptions Exceptions
	// Excepted gets each exception that a call needs to pass, once for a policy; nil is allowed.
	Excepted func(policy string, exception exceptions.Key)
	// Violated gets each request that violates a policy, before the request is answered; nil is allowed.
	Violated func(ViolationReport)
	// ReportsValues permits violations to hold values of the objects of a resource: results of message expressions, texts
	// of errors and messages of plugins. Nil permits none.
	ReportsValues func(resource schema.GroupResource, subresource string) bool
	// Recheck configures the checks of changes; nil disables them.
	Recheck *Recheck
	// Panicked gets each panic of an evaluation; nil is allowed.
	Panicked func(PanicReport)
	// Stored keeps the decoded object for the next Auditor; nil decodes it for each of them.
	Stored *StoredObject

	unchangedTemplates bool // evaluates pod templates that an UPDATE does not change
}

// Params finds the objects that a binding's paramRef names, for a request in a
// namespace, in a stable order, each with its apiVersion and kind. A single nil
// means that the binding is evaluated without params; none at all, that it is
// not evaluated.
type Params interface {
	Params(ctx context.Context, kind *admissionregistrationv1.ParamKind, ref *admissionregistrationv1.ParamRef, namespace string) ([]runtime.Object, error)
}

// Lookups find stored objects by their keys. An error means that the result is not known, such as before an index has
// been loaded; failurePolicy decides.
type Lookups interface {
	Lookup(ctx context.Context, program *lookups.Program, query lookups.Query) (lookups.Result, error)
}

// ParamKinds returns an error for a kind that the API server does not have. As in the API
// server, failurePolicy then decides about every request that the policy matches, whether
// its bindings have a paramRef or not.
type ParamKinds interface {
	CheckKind(ctx context.Context, kind *admissionregistrationv1.ParamKind) error
}

// TypeConverters find the schema of a kind; nil means that it is not known.
type TypeConverters interface {
	GetTypeConverter(gvk schema.GroupVersionKind) managedfields.TypeConverter
}

func (h Environment) pause(ctx context.Context) {
	if h.Pause != nil {
		h.Pause(ctx)
	}
}
