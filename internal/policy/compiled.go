package policy

import (
	"regexp"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// Decision says, in one word, what came of one policy's evaluation of one
// request. The set is closed, so that it may serve as a metric label.
type Decision string

// The decisions. Where several apply to one evaluation, the first in this
// order stands.
const (
	// DecisionError means that an expression failed with an error, whatever
	// failurePolicy then made of it.
	DecisionError Decision = "error"
	// DecisionDeny means that the request was refused.
	DecisionDeny Decision = "deny"
	// DecisionWarn means that the request passed with a warning.
	DecisionWarn Decision = "warn"
	// DecisionAudit means that the request passed with an audit annotation.
	DecisionAudit Decision = "audit"
	// DecisionMutate means that the object was changed.
	DecisionMutate Decision = "mutate"
	// DecisionSkip means that a matchCondition was false.
	DecisionSkip Decision = "skip"
	// DecisionAllow means that every validation was true, or nothing was to be changed.
	DecisionAllow Decision = "allow"
)

// Decisions lists every Decision.
func Decisions() []Decision {
	return []Decision{DecisionError, DecisionDeny, DecisionWarn, DecisionAudit, DecisionMutate, DecisionSkip, DecisionAllow}
}

// Compiled is one policy, ready to be evaluated. It is immutable and safe for
// concurrent use.
type Compiled struct {
	name          string
	include       []rule
	exclude       []rule
	equivalent    bool // matchPolicy: rules are for equivalent resources too
	paramKind     *admissionregistrationv1.ParamKind
	bindings      []binding
	failurePolicy admissionregistrationv1.FailurePolicyType
	validator     validating.Validator
	mutator       mutator
	reads         inputs
	programs      []*program // keeps shared programs alive
}

// inputs are the parts of a request that cost something to provide and that
// some expression may read.
type inputs struct {
	oldObject, namespace, options bool
}

func newCompiled(p *v1alpha1.WebhookPolicy) *Compiled {
	spec := &p.Spec
	c := &Compiled{
		name:          p.Name,
		failurePolicy: spec.EffectiveFailurePolicy(),
		paramKind:     spec.ParamKind.DeepCopy(),
		reads:         readsOf(spec),
	}
	if spec.MatchConstraints != nil {
		c.equivalent = spec.MatchConstraints.MatchPolicy == nil || *spec.MatchConstraints.MatchPolicy == admissionregistrationv1.Equivalent
		c.include = newRules(spec.MatchConstraints.ResourceRules)
		c.exclude = newRules(spec.MatchConstraints.ExcludeResourceRules)
	}
	for _, b := range spec.EffectiveBindings() {
		c.bindings = append(c.bindings, newBinding(p.Name, b))
	}
	return c
}

// Name is the policy's name.
func (c *Compiled) Name() string { return c.name }

// wholeRequest finds the request used other than by selecting a field of it.
// As a value without a static type it gives up its fields by computed names too.
var wholeRequest = regexp.MustCompile(`\brequest\b[^.\w]|\brequest$`)

// readsOf looks for the names of inputs in the text of every expression. A
// name in a comment or a string counts too, which costs a little and is safe.
func readsOf(spec *v1alpha1.WebhookPolicySpec) inputs {
	var in inputs
	look := func(expression string) {
		in.oldObject = in.oldObject || strings.Contains(expression, "oldObject")
		in.namespace = in.namespace || strings.Contains(expression, "namespaceObject")
		in.options = in.options || strings.Contains(expression, "options") || wholeRequest.MatchString(expression)
	}
	for _, c := range spec.MatchConditions {
		look(c.Expression)
	}
	for _, v := range spec.Variables {
		look(v.Expression)
	}
	for _, v := range spec.Validations {
		look(v.Expression)
		look(v.MessageExpression)
	}
	for _, a := range spec.AuditAnnotations {
		look(a.ValueExpression)
	}
	for _, m := range spec.Mutations {
		if m.ApplyConfiguration != nil {
			look(m.ApplyConfiguration.Expression)
		}
		if m.JSONPatch != nil {
			look(m.JSONPatch.Expression)
		}
	}
	for _, b := range spec.Bindings {
		// An object selector matches the old object as well as the new.
		in.oldObject = in.oldObject || b.MatchResources != nil
	}
	return in
}

func (in inputs) with(other inputs) inputs {
	return inputs{
		oldObject: in.oldObject || other.oldObject,
		namespace: in.namespace || other.namespace,
		options:   in.options || other.options,
	}
}
