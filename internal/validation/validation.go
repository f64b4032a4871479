package validation

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/advice"
	"github.com/ostiary/ostiary/internal/egress"
	"github.com/ostiary/ostiary/internal/plugins"
	"github.com/ostiary/ostiary/internal/policy"
)

// ClusterInfo contains facts about the cluster. Unknown facts cause no warning.
type ClusterInfo struct {
	// Replicas is the number of live replicas of Ostiary; 0 means unknown.
	Replicas int
	// Resources are the resources that the API server serves, with subresources. Nil
	// means unknown, also for a version.
	Resources map[schema.GroupVersion][]metav1.APIResource
	// Backends is the rule for addresses of backends.
	Backends egress.Rule
	// Now is the time at which suspensions are compared; zero means unknown.
	Now time.Time
}

// Result is the result of a validation.
type Result struct {
	// Policy has the rules and conditions of its plugin, if it has one.
	Policy *v1alpha1.WebhookPolicy
	// Compiled evaluates requests. With Errors, its failurePolicy decides.
	Compiled *policy.Compiled
	// Errors explain why the policy cannot take effect, each with its field.
	Errors field.ErrorList
	// Registrable is false if no webhook may be registered for the policy. A policy with
	// errors in expressions only can stay registered.
	Registrable bool
	// Compiles is false if an expression does not compile.
	Compiles bool
}

// Validate compiles and validates a policy.
func Validate(compiler *policy.Compiler, p *v1alpha1.WebhookPolicy, backends egress.Rule) Result {
	resolved := plugins.Resolve(p)
	compiled, errs := compiler.CompilePlugin(resolved.Policy, resolved.Plugin, resolved.Errors)
	at := field.NewPath("spec")
	refused := append(Check(p), checkResolved(&resolved.Policy.Spec, at)...)
	if len(checkBackendForm(&p.Spec, at)) == 0 || backends.DisableBackends {
		refused = append(refused, CheckBackend(p.Spec.Backend, backends)...)
	}
	return Result{
		Policy:      resolved.Policy,
		Compiled:    compiled,
		Errors:      append(refused, errs...),
		Registrable: len(refused) == 0 && resolved.Rules(),
		Compiles:    len(errs) == 0,
	}
}

// Review returns the errors of a policy or, without errors, any number of warnings.
func Review(compiler *policy.Compiler, p *v1alpha1.WebhookPolicy, facts ClusterInfo) (v Result, warnings []advice.Warning) {
	if v = Validate(compiler, p, facts.Backends); len(v.Errors) > 0 {
		return v, nil
	}
	w := warner{warnings: warningsAbout(p, facts)}
	w.ratchetRisks(v.Compiled.RatchetRisks(), field.NewPath("spec", "validations"))
	return v, w.warnings
}

// Check returns the errors that prevent the registration of a policy. API servers accept
// the webhook configuration of a policy without errors.
func Check(p *v1alpha1.WebhookPolicy) field.ErrorList {
	var errs field.ErrorList
	for _, check := range []func(*v1alpha1.WebhookPolicySpec, *field.Path) field.ErrorList{
		checkSpec, checkFailurePolicy, checkTimeoutSeconds, checkReinvocationPolicy, checkOrder,
		checkExclusions, checkMatchConditions, checkBackendForm, checkPodTemplates, checkMatchConstraints,
		checkAllowCriticalResources, checkMutations, checkBindings,
	} {
		errs = append(errs, check(&p.Spec, field.NewPath("spec"))...)
	}
	return errs
}
