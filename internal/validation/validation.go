package validation

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/egress"
	"github.com/ostiary/ostiary/internal/plugins"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/registration"
	"github.com/ostiary/ostiary/internal/truncate"
)

const (
	// maxWarnings is the maximum of warnings about one policy.
	maxWarnings = 10
	// maxWarning is the maximum length of a warning, in bytes. API servers truncate
	// longer ones if there are many.
	maxWarning = 256
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
	refused := append(registration.Check(p), registration.CheckPlugin(resolved.Policy)...)
	refused = append(refused, CheckBackend(p.Spec.Backend, backends)...)
	return Result{
		Policy:      resolved.Policy,
		Compiled:    compiled,
		Errors:      append(refused, errs...),
		Registrable: len(refused) == 0 && resolved.Rules(),
		Compiles:    len(errs) == 0,
	}
}

// Review returns the errors of a policy or, without errors, any number of warnings.
func Review(compiler *policy.Compiler, p *v1alpha1.WebhookPolicy, facts ClusterInfo) (v Result, warnings []string) {
	if v = Validate(compiler, p, facts.Backends); len(v.Errors) > 0 {
		return v, nil
	}
	w := warner{warnings: warningsAbout(p, facts)}
	w.ratchetRisks(v.Compiled.RatchetRisks(), field.NewPath("spec", "validations"))
	return v, w.warnings
}

// CheckBackend returns an error if the rule refuses the address of a backend; nil is no
// backend. It does not check the form of the URL.
func CheckBackend(b *v1alpha1.Backend, rule egress.Rule) field.ErrorList {
	at := field.NewPath("spec", "backend")
	switch {
	case b == nil:
		return nil
	case rule.DisableBackends:
		return field.ErrorList{field.Forbidden(at, "remove backend: Ostiary runs with --disable-backends")}
	case b.URL == "":
		return nil
	}
	u, err := url.Parse(b.URL)
	if err != nil {
		return nil
	}
	if err := rule.CheckHost(u.Hostname()); err != nil {
		return field.ErrorList{field.Forbidden(at.Child("url"), err.Error())}
	}
	return nil
}

// Warnings returns the risks of a policy, each with its field. Their number and length
// are bounded.
func Warnings(p *v1alpha1.WebhookPolicy, facts ClusterInfo) []string {
	return Bounded(warningsAbout(p, facts))
}

func warningsAbout(p *v1alpha1.WebhookPolicy, facts ClusterInfo) []string {
	var w warner
	spec := field.NewPath("spec")
	w.help(p)
	w.timeout(&p.Spec, spec)
	w.replicas(&p.Spec, facts, spec)
	w.selectors(&p.Spec, spec)
	// Only rules that the author has written: those of a plugin have no field to change.
	w.rules(&p.Spec, spec)
	w.reviews(&p.Spec, spec)
	w.served(&p.Spec, facts, spec)
	w.templates(&p.Spec, facts, spec)
	w.ratchets(&p.Spec, spec)
	return w.warnings
}

// warner collects warnings.
type warner struct{ warnings []string }

func (w *warner) warn(at *field.Path, format string, args ...any) {
	w.warnings = append(w.warnings, at.String()+": "+fmt.Sprintf(format, args...))
}

// Bounded returns the first warnings, each on one line and truncated to the length that
// API servers forward, and the number of omitted ones.
func Bounded(warnings []string) []string {
	out := slices.Clone(warnings)
	if more := len(out) - maxWarnings; more > 0 {
		out = append(out[:maxWarnings:maxWarnings], fmt.Sprintf("%d more warnings were left out", more))
	}
	for i, warning := range out {
		out[i] = truncate.String(strings.Join(strings.Fields(warning), " "), maxWarning)
	}
	return out
}
