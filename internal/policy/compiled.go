package policy

import (
	"encoding/json"
	"fmt"
	"sync/atomic"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/types"
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
	// DecisionBreakGlass means that the policy would have refused the request or
	// changed the object, and that the user may skip it.
	DecisionBreakGlass Decision = "breakglass"
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
	// DecisionAnnotate means that the request passed and that the policy wrote a value
	// into the audit log.
	DecisionAnnotate Decision = "annotate"
	// DecisionSkip means that a matchCondition was false.
	DecisionSkip Decision = "skip"
	// DecisionUnmatched means that no binding applies to the request: none matches it,
	// or its params do not exist and parameterNotFoundAction is Allow.
	DecisionUnmatched Decision = "unmatched"
	// DecisionAllow means that every validation was true, or nothing was to be changed.
	DecisionAllow Decision = "allow"
)

// Decisions lists every Decision.
func Decisions() []Decision {
	return []Decision{DecisionBreakGlass, DecisionError, DecisionDeny, DecisionWarn, DecisionAudit, DecisionMutate, DecisionAnnotate, DecisionSkip, DecisionUnmatched, DecisionAllow}
}

// Compiled is one policy, ready to be evaluated. It is immutable, but for a
// count and a time, and safe for concurrent use.
type Compiled struct {
	name          string
	uid           types.UID
	generation    int64
	include       []rule
	exclude       []rule
	equivalent    bool // matchPolicy: rules are for equivalent resources too
	paramKind     *admissionregistrationv1.ParamKind
	bindings      []binding
	whole         binding
	failurePolicy admissionregistrationv1.FailurePolicyType
	validator     validating.Validator
	mutator       mutator
	plugin        Plugin // nil: expressions decide
	breakGlass    bool   // users whom RBAC allows it skip the policy
	reads         inputs
	programs      []*program // keeps shared programs alive
	changes       atomic.Uint64
	lastStack     atomic.Int64 // in ns since 1970; see PanicReport

	rules string                        // the rules, as a key: policies with equal ones match the same requests
	plain []celplugin.CompilationResult // the validations, where nothing else is to be evaluated; see batch
}

func newCompiled(p *v1alpha1.WebhookPolicy) *Compiled {
	spec := &p.Spec
	c := &Compiled{
		name:          p.Name,
		uid:           p.UID,
		generation:    p.Generation,
		failurePolicy: spec.EffectiveFailurePolicy(),
		paramKind:     spec.ParamKind.DeepCopy(),
		breakGlass:    spec.BreakGlass,
		reads:         readsOf(spec),
		whole:         newWhole(p),
	}
	if spec.MatchConstraints != nil {
		c.equivalent = spec.MatchConstraints.MatchPolicy == nil || *spec.MatchConstraints.MatchPolicy == admissionregistrationv1.Equivalent
		c.include = newRules(spec.MatchConstraints.ResourceRules)
		c.exclude = newRules(spec.MatchConstraints.ExcludeResourceRules)
	}
	c.rules = rulesKey(spec.MatchConstraints)
	for _, b := range spec.EffectiveBindings() {
		c.bindings = append(c.bindings, newBinding(p, b))
	}
	return c
}

// Name is the policy's name.
func (c *Compiled) Name() string { return c.name }

// rulesKey is equal for policies whose rules are.
func rulesKey(match *admissionregistrationv1.MatchResources) string {
	if match == nil {
		return ""
	}
	key, err := json.Marshal(admissionregistrationv1.MatchResources{
		ResourceRules: match.ResourceRules, ExcludeResourceRules: match.ExcludeResourceRules, MatchPolicy: match.MatchPolicy,
	})
	if err != nil {
		panic(fmt.Sprintf("encoding rules, which hold only strings: %v", err))
	}
	return string(key)
}
