package policy

import (
	"context"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/violationtext"
)

// binding is a compiled binding of a policy.
type binding struct {
	name     string
	actions  []admissionregistrationv1.ValidationAction
	subject  string // "WebhookPolicy 'p' with binding 'b'"
	help     string // follows messages: " (see https://...)", or ""
	paramRef *admissionregistrationv1.ParamRef
	match    matching.MatchCriteria // nil matches everything that the policy matches
	whole    bool                   // it represents the policy, in errors of the policy
}

func newBinding(p *v1alpha1.WebhookPolicy, b v1alpha1.Binding) binding {
	subject := "WebhookPolicy '" + p.Name + "'"
	if b.Name != "" {
		subject += " with binding '" + b.Name + "'"
	}
	out := binding{name: b.Name, actions: slices.Clone(b.ValidationActions), subject: subject, paramRef: b.ParamRef.DeepCopy()}
	if url := p.HelpURL(); url != "" {
		out.help = " (see " + url + ")"
	}
	if b.MatchResources != nil {
		out.match = newCriteria(b.MatchResources.DeepCopy())
	}
	return out
}

// newWhole returns a binding that represents the policy, for errors that are not about one of
// its bindings.
func newWhole(p *v1alpha1.WebhookPolicy) binding {
	b := newBinding(p, v1alpha1.Binding{})
	b.whole = true
	return b
}

// newSelectors returns a binding with the selectors of a policy, nil without any.
func newSelectors(m *admissionregistrationv1.MatchResources) *binding {
	if m == nil || m.NamespaceSelector == nil && m.ObjectSelector == nil {
		return nil
	}
	selectors := admissionregistrationv1.MatchResources{NamespaceSelector: m.NamespaceSelector.DeepCopy(), ObjectSelector: m.ObjectSelector.DeepCopy()}
	return &binding{match: newCriteria(&selectors)}
}

// misconfigured returns an error of the configuration in the words of the API server.
func (b *binding) misconfigured(err error) error {
	if b.whole {
		return fmt.Errorf(violationtext.PolicyErrorPrefix+"%w", err)
	}
	return fmt.Errorf(violationtext.BindingErrorPrefix+"%w", err)
}

// criteria holds matchResources with parsed selectors.
type criteria struct {
	resources            admissionregistrationv1.MatchResources
	namespaces, objects  labels.Selector
	namespaceErr, objErr error
}

// newCriteria keeps the selectors, which must not change.
func newCriteria(in *admissionregistrationv1.MatchResources) *criteria {
	c := &criteria{resources: *in}
	if c.resources.MatchPolicy == nil {
		equivalent := admissionregistrationv1.Equivalent
		c.resources.MatchPolicy = &equivalent
	}
	c.namespaces, c.namespaceErr = selector(in.NamespaceSelector)
	c.objects, c.objErr = selector(in.ObjectSelector)
	return c
}

// selector parses a selector. An absent one matches everything, like an empty one, as
// with the defaults of the API server.
func selector(in *metav1.LabelSelector) (labels.Selector, error) {
	if in == nil {
		in = &metav1.LabelSelector{}
	}
	return metav1.LabelSelectorAsSelector(in)
}

// GetParsedNamespaceSelector implements matching.MatchCriteria.
func (c *criteria) GetParsedNamespaceSelector() (labels.Selector, error) {
	return c.namespaces, c.namespaceErr
}

// GetParsedObjectSelector implements matching.MatchCriteria.
func (c *criteria) GetParsedObjectSelector() (labels.Selector, error) { return c.objects, c.objErr }

// GetMatchResources implements matching.MatchCriteria.
func (c *criteria) GetMatchResources() admissionregistrationv1.MatchResources { return c.resources }

// invocation is one evaluation: of a binding, with one of its params. If the binding
// cannot be evaluated, err gives the reason.
type invocation struct {
	binding *binding
	param   runtime.Object
	err     error
}

// invocations returns the evaluations of a policy for a request, in the order of the
// bindings and of the names of params.
func (c *Compiled) invocations(ctx context.Context, on *subject, host Environment) []invocation {
	if c.paramKind != nil && host.ParamKinds != nil {
		if err := host.ParamKinds.CheckKind(ctx, c.paramKind); err != nil {
			return []invocation{{binding: &c.whole, err: err}}
		}
	}
	var out []invocation
	left := MaxParams
	for i := range c.bindings {
		host.pause(ctx)
		b := &c.bindings[i]
		matches, err := b.matches(on, host)
		if err != nil {
			out = append(out, invocation{binding: b, err: err})
			continue
		}
		if !matches {
			continue
		}
		params, err := c.params(ctx, b, on, host)
		if err == nil && len(params) > left {
			err = tooManyParams(len(params), left, i)
		}
		if err != nil {
			out = append(out, invocation{binding: b, err: err})
			continue
		}
		left -= len(params)
		for _, p := range params {
			out = append(out, invocation{binding: b, param: readable(p)})
		}
	}
	return out
}

func (b *binding) denies() bool {
	return slices.Contains(b.actions, admissionregistrationv1.Deny)
}

// denies reports whether a refusal denies the request.
func (s *step) denies() bool {
	if s.on.template != "" && len(s.policy.templates.actions) > 0 {
		return slices.Contains(s.policy.templates.actions, admissionregistrationv1.Deny)
	}
	return s.binding.denies()
}

func (b *binding) matches(on *subject, host Environment) (bool, error) {
	if b.match == nil {
		return true, nil
	}
	if host.Matcher == nil || host.Objects == nil {
		return false, errNoMatcher
	}
	matches, _, _, err := host.Matcher.Matches(labelled{on.selection()}, host.Objects, b.match)
	return matches, err
}

// labelled hides objects without metadata, such as the options of a CONNECT, from
// selectors. The API server does not treat them as objects: only the empty selector
// matches them. Decoded from JSON they would be objects without labels.
type labelled struct{ admission.Attributes }

// GetObject implements admission.Attributes.
func (a labelled) GetObject() runtime.Object { return withMetadata(a.Attributes.GetObject()) }

// GetOldObject implements admission.Attributes.
func (a labelled) GetOldObject() runtime.Object { return withMetadata(a.Attributes.GetOldObject()) }

func withMetadata(object runtime.Object) runtime.Object {
	if u, ok := object.(*unstructured.Unstructured); ok && u.Object["metadata"] == nil {
		return nil
	}
	return object
}

// MaxParams is the maximum number of params that one request reads for a policy. The cost limits of Kubernetes are per
// param, and a user who may create params chooses their number. The evaluation of 1,000 params with a small expression takes
// some milliseconds.
const MaxParams = 1000

// tooManyParams returns the error for a binding that selects more params than are left for it.
func tooManyParams(selected, left, binding int) error {
	others := ""
	if left < MaxParams {
		others = fmt.Sprintf(" in addition to the %d of earlier bindings", MaxParams-left)
	}
	return fmt.Errorf("%d params%s are more than the %d that a request reads for a policy at spec.bindings[%d].paramRef: select fewer by name, namespace or labels, or delete some",
		selected, others, MaxParams, binding)
}

// params returns the objects to evaluate a binding with, in the order of the native
// dispatcher.
func (c *Compiled) params(ctx context.Context, b *binding, on *subject, host Environment) ([]runtime.Object, error) {
	if c.paramKind == nil || b.paramRef == nil || ctx.Err() != nil { // not evaluated
		return noParams, nil //nolint:nilerr // the evaluation reports that the time is over
	}
	if host.Params == nil {
		return nil, errNoParams
	}
	return ReadParams(ctx, host.Params, ParamNeed{Kind: *c.paramKind, Ref: b.paramRef, Reads: c.reads.params}, on.raw.Namespace)
}

// result is the result of one invocation in the validating phase.
type result struct {
	binding     *binding
	param       runtime.Object
	decisions   []validating.PolicyDecision
	codes       []int32            // of the decisions; without an entry, that of the reason
	validations []validationResult // of the decisions; nil without names and ratchets
	warnings    []string
	annotations []validating.PolicyAuditAnnotation
	err         error // the binding could not be evaluated

	template        string // the path of the evaluated pod template; empty for the object itself
	templateActions []admissionregistrationv1.ValidationAction
}
