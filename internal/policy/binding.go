package policy

import (
	"context"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/matchresources"
	"github.com/ostiary/ostiary/internal/rollout"
	"github.com/ostiary/ostiary/internal/violationtext"
)

// binding is a compiled binding of a policy.
type binding struct {
	name     string
	actions  []admissionregistrationv1.ValidationAction
	subject  string // "WebhookPolicy 'p' with binding 'b'"
	help     string // follows messages: " (see https://...)", or ""
	paramRef *admissionregistrationv1.ParamRef
	match    *matchresources.Criteria
	whole    bool // it represents the policy, in errors of the policy

	mutationAction v1alpha1.MutationAction
	inStep         bool            // of a rollout: the actions are not the final ones
	evidence       string          // see rollout.Effect
	staged         []stagedBinding // later effects of a rollout, in some namespaces; the first that selects applies
}

// stagedBinding is a binding with the actions that it has in some namespaces.
type stagedBinding struct {
	namespaces *matchresources.Criteria
	binding
}

func newBinding(p *v1alpha1.WebhookPolicy, b v1alpha1.Binding) binding {
	subject := "WebhookPolicy '" + p.Name + "'"
	if b.Name != "" {
		subject += " with binding '" + b.Name + "'"
	}
	out := binding{
		name:     b.Name,
		subject:  subject,
		paramRef: b.ParamRef.DeepCopy(),
		match:    matchresources.NewCriteria(b.MatchResources),
	}
	if url := p.HelpURL(); url != "" {
		out.help = " (see " + url + ")"
	}
	effects := rollout.Effective(&b, rollout.Recorded(p))
	last := len(effects) - 1
	for _, e := range effects[:last] {
		staged := stagedBinding{namespaces: matchresources.NewSelectors(e.NamespaceSelector, nil), binding: out}
		staged.setEffect(e)
		out.staged = append(out.staged, staged)
	}
	out.setEffect(effects[last])
	return out
}

func (b *binding) setEffect(e rollout.Effect) {
	b.actions, b.mutationAction = slices.Clone(e.ValidationActions), e.MutationAction
	b.inStep, b.evidence = e.Step != "", e.Evidence
}

// inEffect returns the binding with the actions that it has for a subject. An error is one of the binding only if an action
// that may apply denies: the earliest action applies otherwise.
func (b *binding) inEffect(on *subject, host Environment) (*binding, error) {
	hasLabels := on.raw.Namespace != "" || on.raw.Resource.Resource == "namespaces"
	for i := range b.staged {
		if !hasLabels {
			break
		}
		s := &b.staged[i]
		switch matches, err := on.selectedBy(s.namespaces, host); {
		case err != nil && s.denies():
			return b, err
		case err == nil && matches:
			return &s.binding, nil
		}
	}
	return b, nil
}

// newWhole returns a binding that represents the policy, for errors that are not about one of
// its bindings.
func newWhole(p *v1alpha1.WebhookPolicy) binding {
	b := newBinding(p, v1alpha1.Binding{})
	b.whole, b.actions = true, nil
	return b
}

// misconfigured returns an error of the configuration in the words of the API server.
func (b *binding) misconfigured(err error) error {
	if b.whole {
		return fmt.Errorf(violationtext.PolicyErrorPrefix+"%w", err)
	}
	return fmt.Errorf(violationtext.BindingErrorPrefix+"%w", err)
}

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
		matches, err := on.selectedBy(b.match, host)
		if err != nil {
			out = append(out, invocation{binding: b, err: err})
			continue
		}
		if !matches {
			continue
		}
		b, err = b.inEffect(on, host)
		if err != nil {
			out = append(out, invocation{binding: b, err: err})
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

// actions returns the validationActions of a step of an evaluation: for a pod template, they can differ
// from the final ones of the binding.
func (s *step) actions() []admissionregistrationv1.ValidationAction {
	if s.on.template != "" && len(s.policy.templates.actions) > 0 && !s.binding.inStep {
		return s.policy.templates.actions
	}
	return s.binding.actions
}

// denies reports whether a refusal denies the request.
func (s *step) denies() bool { return slices.Contains(s.actions(), admissionregistrationv1.Deny) }

// previews reports whether the result of the mutations is recorded and not applied.
func (s *step) previews() bool { return s.binding.previews() }

func (b *binding) previews() bool { return b.mutationAction == v1alpha1.MutationActionPreview }

// previewsEverywhere reports whether the binding previews mutations in all namespaces.
func (b *binding) previewsEverywhere() bool {
	return b.previews() && !slices.ContainsFunc(b.staged, func(s stagedBinding) bool { return !s.previews() })
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
