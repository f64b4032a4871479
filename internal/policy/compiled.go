package policy

import (
	"slices"
	"sync/atomic"
	"time"
	"unique"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/celengine"
	"github.com/ostiary/ostiary/internal/celengine/uncounted"
	"github.com/ostiary/ostiary/internal/celsyntax"
	"github.com/ostiary/ostiary/internal/exceptions"
	"github.com/ostiary/ostiary/internal/matchresources"
	"github.com/ostiary/ostiary/internal/pluginapi"
	"github.com/ostiary/ostiary/internal/violationtext"
)

// Decision is the result of one evaluation of a policy. The set is closed, so that it can
// be the value of a metric label.
type Decision string

// Decisions, in order of precedence.
const (
	// DecisionBreakGlass means that the policy denied the request or changed the object,
	// and that the user skipped it.
	DecisionBreakGlass Decision = "breakglass"
	// DecisionError means that an expression failed with an error, whatever failurePolicy
	// decided.
	DecisionError Decision = "error"
	// DecisionDeny means that the request was denied.
	DecisionDeny Decision = "deny"
	// DecisionWarn means that the request passed with a warning.
	DecisionWarn Decision = "warn"
	// DecisionAudit means that the request passed with an audit annotation.
	DecisionAudit Decision = "audit"
	// DecisionRatchet means that the request passed although a validation was false,
	// because the policy applies to the stored object, and it is false for that too.
	DecisionRatchet Decision = "ratchet"
	// DecisionExcepted means that the request passed although a validation was false, or that
	// the object was not changed, because of an exception.
	DecisionExcepted Decision = "excepted"
	// DecisionMutate means that the object was changed.
	DecisionMutate Decision = "mutate"
	// DecisionPreview means that the object would have been changed, and that the binding
	// only previews this.
	DecisionPreview Decision = "preview"
	// DecisionAnnotate means that the request passed and that the policy wrote a value
	// into the audit log.
	DecisionAnnotate Decision = "annotate"
	// DecisionSkip means that a matchCondition was false.
	DecisionSkip Decision = "skip"
	// DecisionSuspended means that the policy is suspended.
	DecisionSuspended Decision = "suspended"
	// DecisionUnmatched means that no binding applies to the request: none matches it,
	// or its params do not exist and parameterNotFoundAction is Allow.
	DecisionUnmatched Decision = "unmatched"
	// DecisionAllow means that every validation was true, or that no mutation changed the
	// object.
	DecisionAllow Decision = "allow"
)

// Decisions returns every Decision.
func Decisions() []Decision {
	return []Decision{
		DecisionBreakGlass, DecisionError, DecisionDeny, DecisionWarn, DecisionAudit, DecisionRatchet, DecisionExcepted,
		DecisionMutate, DecisionPreview, DecisionAnnotate, DecisionSkip, DecisionSuspended, DecisionUnmatched, DecisionAllow,
	}
}

// Compiled is a policy that is ready to be evaluated. It is immutable, except for a
// counter and a time, and safe for concurrent use.
type Compiled struct {
	name          string
	uid           types.UID
	generation    int64
	rules         matchresources.Rules
	paramKind     *admissionregistrationv1.ParamKind
	bindings      []binding
	whole         binding
	selectors     *matchresources.Criteria // those of the policy, which the API server applies
	failurePolicy admissionregistrationv1.FailurePolicyType
	validator     validating.Validator
	validations   *validations // nil without names and ratchets
	templates     *templates   // nil for a policy that is not evaluated on pod templates
	mutator       mutator
	plugin        pluginapi.Plugin // nil for a policy with expressions
	texts         violationtext.Texts
	audit         celsyntax.Audit
	decidesAnew   bool // see DecidesAnew
	ratchetRisks  []celsyntax.RatchetRisk
	breakGlass    bool                 // users with the permission can skip the policy
	permitted     *v1alpha1.Exceptions // nil for a policy without exceptions
	conditions    exceptions.Compiler  // of them

	suspendedUntil time.Time // zero for a policy that is not suspended

	reads     inputs
	programs  []*celengine.Program // keeps shared programs alive
	lookups   []compiledLookup
	changes   atomic.Uint64
	lastStack atomic.Int64 // in ns since 1970; see PanicReport

	rulesKey  unique.Handle[string] // equal for policies that match the same requests
	quick     *uncounted.Policy     // nil for a policy that a batch cannot evaluate
	needsMore bool                  // the batch evaluates it when its bindings and params are known
	alone     aloneExpressions      // of a policy that a batch can evaluate
}

func newCompiled(p *v1alpha1.WebhookPolicy, parsed celsyntax.Trees) *Compiled {
	spec := &p.Spec
	c := &Compiled{
		name:           p.Name,
		uid:            p.UID,
		generation:     p.Generation,
		failurePolicy:  spec.EffectiveFailurePolicy(),
		rules:          matchresources.NewRules(spec.MatchConstraints),
		rulesKey:       unique.Make(matchresources.RulesKey(spec.MatchConstraints)),
		paramKind:      spec.ParamKind.DeepCopy(),
		breakGlass:     spec.BreakGlass,
		permitted:      spec.Exceptions.DeepCopy(),
		suspendedUntil: p.SuspendedUntil(),
		reads:          readsOf(spec, parsed),
		whole:          newWhole(p),
		templates:      newTemplates(p),
		audit:          celsyntax.AuditOf(spec, parsed),
		ratchetRisks:   celsyntax.RatchetRisks(spec, parsed),
	}
	c.decidesAnew = decidesAnew(spec, c.audit, c.reads)
	if m := spec.MatchConstraints; m != nil {
		c.selectors = matchresources.NewSelectors(m.NamespaceSelector, m.ObjectSelector)
	}
	for _, b := range spec.EffectiveBindings() {
		c.bindings = append(c.bindings, newBinding(p, b))
	}
	if !slices.ContainsFunc(c.bindings, func(b binding) bool { return !b.previewsEverywhere() }) {
		c.whole.mutationAction = v1alpha1.MutationActionPreview
	}
	return c
}

// Name returns the name of the policy.
func (c *Compiled) Name() string { return c.name }

// CountsFor reports whether a binding collects the evidence of the step of a rollout with a key: see rollout.Effect.
func (c *Compiled) CountsFor(step string) bool {
	return step != "" && slices.ContainsFunc(c.bindings, func(b binding) bool {
		return b.evidence == step || slices.ContainsFunc(b.staged, func(s stagedBinding) bool { return s.evidence == step })
	})
}

// Unauditable returns why the policy cannot be evaluated on stored objects, as an update that
// changes nothing and as a creation, by an anonymous user; "" if it can.
func (c *Compiled) Unauditable() string { return c.audit.Unauditable }

// AuditsMutations reports whether the mutations can be evaluated on stored objects, too.
func (c *Compiled) AuditsMutations() bool { return c.audit.Mutates }

// DecidesAnew reports whether the policy can decide about a new object in another way than
// about an update of the same object that changes nothing, if its rules match both.
func (c *Compiled) DecidesAnew() bool { return c.decidesAnew }

// RatchetRisks returns the risks of the ratcheting validations. Who wrote the stored object,
// with which permissions and options, is not known: the second evaluation has the values of
// the current request.
func (c *Compiled) RatchetRisks() []celsyntax.RatchetRisk { return c.ratchetRisks }
