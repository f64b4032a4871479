package policy

import (
	"encoding/json"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
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
	// DecisionSkip means that a matchCondition was false.
	DecisionSkip Decision = "skip"
	// DecisionAllow means that every validation was true.
	DecisionAllow Decision = "allow"
)

// Decisions lists every Decision.
func Decisions() []Decision {
	return []Decision{DecisionError, DecisionDeny, DecisionWarn, DecisionAudit, DecisionSkip, DecisionAllow}
}

// Compiled is one policy, ready to be evaluated. It is immutable and safe for
// concurrent use.
type Compiled struct {
	name          string
	include       []rule
	exclude       []rule
	bindings      []binding
	failurePolicy admissionregistrationv1.FailurePolicyType
	validator     validating.Validator
	reads         inputs
	programs      []*program // keeps shared programs alive

	rules string                        // the rules, as a key: policies with equal ones match the same requests
	plain []celplugin.CompilationResult // the validations, where nothing else is to be evaluated; see batch
}

// binding is what messages need of a binding, made once.
type binding struct {
	name    string
	actions []admissionregistrationv1.ValidationAction
	subject string // "WebhookPolicy 'p' with binding 'b'"
}

func newCompiled(p *v1alpha1.WebhookPolicy) *Compiled {
	spec := &p.Spec
	c := &Compiled{
		name:          p.Name,
		failurePolicy: spec.EffectiveFailurePolicy(),
		reads:         readsOf(spec),
	}
	if spec.MatchConstraints != nil {
		c.include = newRules(spec.MatchConstraints.ResourceRules)
		c.exclude = newRules(spec.MatchConstraints.ExcludeResourceRules)
	}
	c.rules = rulesKey(spec.MatchConstraints)
	for _, b := range spec.EffectiveBindings() {
		c.bindings = append(c.bindings, newBinding(p.Name, b))
	}
	return c
}

// rulesKey is equal for policies whose rules are.
func rulesKey(match *admissionregistrationv1.MatchResources) string {
	if match == nil {
		return ""
	}
	rules := [][]admissionregistrationv1.NamedRuleWithOperations{match.ResourceRules, match.ExcludeResourceRules}
	key, err := json.Marshal(rules)
	if err != nil {
		panic(fmt.Sprintf("encoding rules, which hold only strings: %v", err))
	}
	return string(key)
}

func newBinding(policy string, b v1alpha1.Binding) binding {
	subject := "WebhookPolicy '" + policy + "'"
	if b.Name != "" {
		subject += " with binding '" + b.Name + "'"
	}
	return binding{name: b.Name, actions: slices.Clone(b.ValidationActions), subject: subject}
}

// Name is the policy's name.
func (c *Compiled) Name() string { return c.name }
