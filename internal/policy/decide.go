package policy

import (
	"context"

	"github.com/google/cel-go/common/types"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/ostiary/ostiary/internal/celengine"
)

// policyResults are the results of the expressions of a policy that matches, from values of a batch. The validator of
// Kubernetes makes the decisions from them.
type policyResults struct {
	policy                             *Compiled
	validations, messages, annotations celengine.Results // a message for each validation
}

// results returns the results of a policy that the batch has just evaluated. It returns false if an expression has none.
func (c *Compiled) results(
	ctx context.Context,
	on *subject,
	param runtime.Object,
	namespace *corev1.Namespace,
) (policyResults, bool) {
	a := newAloneEvaluation(c, on, param, namespace)
	quick, count := on.values, len(c.texts.Validations)
	r := policyResults{policy: c, validations: make(celengine.Results, count), messages: make(celengine.Results, count)}
	for i := range r.validations {
		var ok bool
		if r.validations[i], ok = a.result(ctx, c.alone.validations[i], quick.Validation(i)); !ok {
			return policyResults{}, false
		}
		if r.validations[i].Error != nil || r.validations[i].EvalResult == types.True {
			continue
		}
		message := quick.Message(i)
		if message == nil {
			continue
		}
		if r.messages[i], ok = a.result(ctx, c.alone.messages[i], message); !ok {
			return policyResults{}, false
		}
	}
	r.annotations = make(celengine.Results, len(c.alone.annotations))
	for i := range r.annotations {
		var ok bool
		if r.annotations[i], ok = a.result(ctx, c.alone.annotations[i], quick.Annotation(i)); !ok {
			return policyResults{}, false
		}
	}
	return r, true
}

// decide returns the decisions about the policy.
func (r *policyResults) decide(ctx context.Context, on *subject) validating.ValidateResult {
	validator := validating.NewValidator(r.validations, nil, r.annotations, r.messages, &r.policy.failurePolicy, nil)
	resource := schema.GroupVersionResource(on.raw.Resource)
	budget := int64(celconfig.RuntimeCELCostBudget)
	return validator.Validate(ctx, resource, on.versioned, nil, nil, budget, nil)
}

// decide keeps the decisions about violated policies, which have no audit annotations: see needsMore. The validator
// decides on each result independently of the others, and each call copies the request, so there is one call for all
// policies with the same failurePolicy.
func (on *subject) decide(ctx context.Context, violated []policyResults) {
	if len(violated) == 0 {
		return
	}
	if on.decided == nil {
		on.decided = make(map[*Compiled]validating.ValidateResult, len(violated))
	}
	for _, failurePolicy := range []admissionregistrationv1.FailurePolicyType{
		admissionregistrationv1.Fail, admissionregistrationv1.Ignore,
	} {
		joined := joinResults(violated, failurePolicy)
		if joined.policy != nil {
			on.divideDecisions(violated, failurePolicy, joined.decide(ctx, on).Decisions)
		}
	}
}

// joinResults joins the results of the policies with a failurePolicy; its policy is one of them, nil without any.
func joinResults(all []policyResults, failurePolicy admissionregistrationv1.FailurePolicyType) policyResults {
	var joined policyResults
	for i := range all {
		if all[i].policy.failurePolicy != failurePolicy {
			continue
		}
		if joined.policy == nil {
			joined = all[i]
			continue
		}
		joined.validations = append(joined.validations, all[i].validations...)
		joined.messages = append(joined.messages, all[i].messages...)
	}
	return joined
}

// divideDecisions keeps the decisions about joined results for each policy.
func (on *subject) divideDecisions(
	all []policyResults,
	failurePolicy admissionregistrationv1.FailurePolicyType,
	decisions []validating.PolicyDecision,
) {
	for i := range all {
		if all[i].policy.failurePolicy != failurePolicy {
			continue
		}
		n := len(all[i].validations)
		on.decided[all[i].policy] = validating.ValidateResult{Decisions: decisions[:n:n]}
		decisions = decisions[n:]
	}
}
