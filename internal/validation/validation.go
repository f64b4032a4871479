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
	// maxWarnings bounds the warnings about one policy.
	maxWarnings = 10
	// maxWarning bounds one of them, in bytes. API servers cut what is longer
	// when there are many.
	maxWarning = 256
)

// ClusterInfo are what is known of the cluster that a policy is for. What is not
// known gives no warning.
type ClusterInfo struct {
	// Replicas is how many replicas of Ostiary answer calls; 0 is not known.
	Replicas int
	// Resources are what the API server serves, subresources included. Nil is
	// not known, and so is a version without a list.
	Resources map[schema.GroupVersion][]metav1.APIResource
	// Backends is the rule for backends.
	Backends egress.Rule
}

// Result is what is wrong with a policy.
type Result struct {
	// Policy is the policy with what its plugin adds to it, if it has one.
	Policy *v1alpha1.WebhookPolicy
	// Compiled answers requests, with Errors where there are any.
	Compiled *policy.Compiled
	// Errors say why the policy cannot be in force, each with its field.
	Errors field.ErrorList
	// Registrable is false where no webhook may be registered for it. A policy
	// whose expressions alone are wrong may stay registered.
	Registrable bool
	// Compiles is false where an expression does not.
	Compiles bool
}

// Validate says what is wrong with a policy. It takes as long as compiling it.
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

// Review says why a policy cannot be in force and, where nothing keeps it from
// that, what is risky about it, in any number of warnings.
func Review(compiler *policy.Compiler, p *v1alpha1.WebhookPolicy, facts ClusterInfo) (errs field.ErrorList, warnings []string) {
	if v := Validate(compiler, p, facts.Backends); len(v.Errors) > 0 {
		return v.Errors, nil
	}
	return nil, warningsAbout(p, facts)
}

// CheckBackend says why the rule refuses a backend; nil is none. What is wrong
// with its URL otherwise is not said here.
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

// Warnings say what is risky about a policy, each with its field. They are
// bounded in number and length.
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
	return w.warnings
}

// warner gathers warnings.
type warner struct{ warnings []string }

func (w *warner) warn(at *field.Path, format string, args ...any) {
	w.warnings = append(w.warnings, at.String()+": "+fmt.Sprintf(format, args...))
}

// Bounded returns the first warnings, each on one line and cut to a length that API
// servers pass on, and the number of those that are left out.
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
