package offline

import (
	"errors"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook"
	webhookconditions "k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/egress"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/registration"
	"github.com/ostiary/ostiary/internal/registration/matchconditions"
	"github.com/ostiary/ostiary/internal/validation"
)

// OwnNamespace is the namespace of Ostiary where nothing else is known. It is exempt from
// policies.
const OwnNamespace = "ostiary-system"

// Engine evaluates policies. It is immutable and safe for concurrent use.
type Engine struct {
	APIs     *APIs
	Compiler *policy.Compiler
	// Invalid are the optional policies that are left out.
	Invalid []InvalidPolicy

	exempt   []string // namespaces
	hooks    []*hook
	policies map[string]*v1alpha1.WebhookPolicy
	compiled map[string]*policy.Compiled
	// Each policy in a group of its own.
	alone, aloneOnTemplates map[string]*policy.Group
}

// InvalidPolicy is a policy that Ostiary does not accept, and why.
type InvalidPolicy struct {
	*Policy
	Problems []error
}

// hook is a webhook that Ostiary registers.
type hook struct {
	webhook.WebhookAccessor

	phase     registration.Phase
	resources admissionregistrationv1.MatchResources
	// conditions are nil without matchConditions.
	conditions webhookconditions.Matcher
	reinvoked  bool
	// policies are nil for a backend. alone has each of them in a group of its own.
	policies *policy.Group
	alone    map[string]*policy.Group
	// backend is the policy with the backend.
	backend *v1alpha1.WebhookPolicy
}

// GetMatchResources implements matching.MatchCriteria.
func (h *hook) GetMatchResources() admissionregistrationv1.MatchResources { return h.resources }

// NewEngine compiles policies. The error has every problem for which Ostiary rejects a
// policy, with its position. The exempt namespaces are those besides Kubernetes' own;
// without any, OwnNamespace is exempt.
func NewEngine(policies []Policy, compiler *policy.Compiler, apis *APIs, exempt ...string) (*Engine, error) {
	if len(exempt) == 0 {
		exempt = []string{OwnNamespace}
	}
	e := &Engine{
		APIs:             apis,
		Compiler:         compiler,
		exempt:           exempt,
		policies:         map[string]*v1alpha1.WebhookPolicy{},
		compiled:         map[string]*policy.Compiled{},
		alone:            map[string]*policy.Group{},
		aloneOnTemplates: map[string]*policy.Group{},
	}
	var resolved []*v1alpha1.WebhookPolicy
	var errs []error
	for i := range policies {
		p := &policies[i]
		result := validation.Validate(compiler, p.WebhookPolicy, egress.Rule{})
		var problems []error
		for _, problem := range result.Errors {
			problems = append(problems, p.Source.Errorf(problem.Field, "%s: %s", p.Name, problem.ErrorBody()))
		}
		if len(problems) > 0 && p.Optional {
			e.Invalid = append(e.Invalid, InvalidPolicy{Policy: p, Problems: problems})
			continue
		}
		errs = append(errs, problems...)
		e.compiled[p.Name] = result.Compiled
		e.policies[p.Name] = result.Policy
		e.alone[p.Name] = policy.NewGroup([]*policy.Compiled{result.Compiled})
		e.aloneOnTemplates[p.Name] = policy.NewTemplateGroup([]*policy.Compiled{result.Compiled})
		resolved = append(resolved, result.Policy)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if err := e.register(resolved); err != nil {
		return nil, err
	}
	return e, nil
}

// register plans the webhooks of policies. It delegates no conditions to the API server:
// delegation does not change results, and Ostiary evaluates them faster.
func (e *Engine) register(policies []*v1alpha1.WebhookPolicy) error {
	in := registration.Input{
		Policies:         policies,
		Endpoint:         registration.Endpoint{Service: &registration.Service{Namespace: OwnNamespace, Name: "ostiary", Port: 443}},
		ExemptNamespaces: e.exempt,
	}
	for _, p := range policies {
		in.RefusedConditions = append(in.RefusedConditions, matchconditions.Condition(&p.Spec))
	}
	plan := registration.Build(in)
	var compiler cel.ConditionCompiler
	for i := range plan.Groups {
		group := &plan.Groups[i]
		h := newHook(group)
		if h == nil {
			return fmt.Errorf("internal error: the group %s has no webhook", group.Name)
		}
		if len(h.GetMatchConditions()) > 0 {
			if compiler == nil {
				compiler = cel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
			}
			h.conditions = h.GetCompiledMatcher(compiler)
		}
		var members []*policy.Compiled
		for _, name := range group.Members {
			if e.policies[name].Spec.Backend != nil {
				h.backend = e.policies[name]
			}
			members = append(members, e.compiled[name])
		}
		if h.backend == nil {
			h.policies, h.alone = policy.NewGroup(members), e.alone
			if group.Key().OfTemplates() {
				h.policies, h.alone = policy.NewTemplateGroup(members), e.aloneOnTemplates
			}
		}
		e.hooks = append(e.hooks, h)
	}
	return nil
}

// newHook returns the webhook of a call group.
func newHook(group *registration.Group) *hook {
	h := &hook{phase: group.Phase}
	switch c := group.Configuration.(type) {
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		w := &c.Webhooks[0]
		h.WebhookAccessor = webhook.NewMutatingWebhookAccessor(w.Name, c.Name, w)
		h.reinvoked = w.ReinvocationPolicy != nil && *w.ReinvocationPolicy == admissionregistrationv1.IfNeededReinvocationPolicy
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		h.WebhookAccessor = webhook.NewValidatingWebhookAccessor(c.Webhooks[0].Name, c.Name, &c.Webhooks[0])
	default:
		return nil
	}
	h.resources = admissionregistrationv1.MatchResources{MatchPolicy: h.GetMatchPolicy()}
	for _, r := range h.GetRules() {
		h.resources.ResourceRules = append(h.resources.ResourceRules, admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: r})
	}
	return h
}

// Policy returns a policy with the rules of its plugin; nil if there is none of that name.
func (e *Engine) Policy(name string) *v1alpha1.WebhookPolicy { return e.policies[name] }

// Names returns the names of all policies, sorted.
func (e *Engine) Names() []string {
	names := make([]string, 0, len(e.policies))
	for name := range e.policies {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
