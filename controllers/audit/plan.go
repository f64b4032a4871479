package audit

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/audit"
	"github.com/ostiary/ostiary/internal/audit/results"
	"github.com/ostiary/ostiary/internal/policy"
)

// target is a policy that is evaluated on the objects of a resource.
type target struct {
	name    string // of the policy, with a prefix for a native one
	policy  *v1alpha1.WebhookPolicy
	version results.Version
	exempt  []string // namespaces
	host    *policy.Environment
}

// wantedResource is a resource with the policies that are evaluated on its objects.
type wantedResource struct {
	kind        schema.GroupVersionKind
	namespaced  bool
	keepsStatus bool              // of new objects
	targets     map[string]target // by policy
}

// plan is what is evaluated on which resources.
type plan map[schema.GroupVersionResource]wantedResource

// versions returns the plan without what only the evaluation needs.
func (p plan) versions() map[schema.GroupVersionResource]results.Resource {
	out := make(map[schema.GroupVersionResource]results.Resource, len(p))
	for gvr, w := range p {
		r := results.Resource{Kind: w.kind, Policies: make(map[string]results.Version, len(w.targets))}
		for name, t := range w.targets {
			r.Policies[name] = t.version
		}
		out[gvr] = r
	}
	return out
}

// planner collects the resources of all policies.
type planner struct {
	api       audit.Served
	resources plan
	problems  map[string]results.Problem // by policy
}

// exclude says why a policy is not evaluated, or not everywhere.
func (p *planner) exclude(name string, of *v1alpha1.WebhookPolicy, why string) {
	p.problems[name] = results.Problem{Subject: results.SubjectOf(of), Why: why}
}

// add adds the resources of a target.
func (p *planner) add(t target) {
	resources, more := audit.Resources(&t.policy.Spec, p.api)
	switch {
	case more:
		p.exclude(t.name, t.policy, audit.TooManyResources())
	case len(resources) == 0:
		p.exclude(t.name, t.policy, "the rules match no resource that the API server lists")
	}
	for _, r := range resources {
		w, ok := p.resources[r.GroupVersionResource]
		if !ok {
			w = wantedResource{kind: r.Kind, namespaced: r.Namespaced, keepsStatus: r.KeepsStatus, targets: map[string]target{}}
			p.resources[r.GroupVersionResource] = w
		}
		w.targets[t.name] = t
	}
}

// unreadParams returns why the params of a policy are not known.
func unreadParams(from Params, spec *v1alpha1.WebhookPolicySpec) string {
	if !spec.ReadsParams() {
		return ""
	}
	switch synced, problem := from.State(spec.ParamKind, spec.ParamRefs()...); {
	case problem != "":
		return problem
	case !synced:
		return "the params are being listed"
	}
	return ""
}

func versionOfTarget(compiled *policy.Compiled, from Params, exceptions uint64, p *v1alpha1.WebhookPolicy) results.Version {
	v := results.Version{Subject: results.SubjectOf(p), Compiled: compiled}
	if p.Spec.ReadsParams() {
		v.Params = from.Version(p.Spec.ParamKind, p.Spec.ParamRefs()...)
	}
	if p.Spec.Exceptions != nil {
		v.Exceptions = exceptions
	}
	return v
}

// forbidden returns what to do about a resource that may not be read.
func forbidden(gr schema.GroupResource) string {
	return fmt.Sprintf(`Ostiary may not list %s for the audit: create a ClusterRole with the label %s: "true" and the rule`+
		` {apiGroups: [%q], resources: [%q], verbs: [list, watch]}`, gr, AggregationLabel, gr.Group, gr.Resource)
}
