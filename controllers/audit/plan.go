package audit

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/audit"
	"github.com/ostiary/ostiary/internal/policy"
)

// wantedResource is a resource with the policies that are evaluated on its objects.
type wantedResource struct {
	kind       schema.GroupVersionKind
	namespaced bool
	targets    map[string]target // by policy
}

// planner collects the resources of all policies.
type planner struct {
	api       audit.Served
	resources map[schema.GroupVersionResource]wantedResource
	problems  map[string]string // by policy: why it is not evaluated, or not everywhere
}

// add adds the resources of a target.
func (p *planner) add(t target) {
	resources, more := audit.Resources(&t.policy.Spec, p.api)
	if more {
		p.problems[t.name] = fmt.Sprintf("the rules match more than %d resources: only the first by name are evaluated", audit.MaxResources)
	}
	for _, r := range resources {
		w, ok := p.resources[r.GroupVersionResource]
		if !ok {
			w = wantedResource{kind: r.Kind, namespaced: r.Namespaced, targets: map[string]target{}}
			p.resources[r.GroupVersionResource] = w
		}
		w.targets[t.name] = t
	}
}

// unauditable returns why a policy cannot be evaluated on stored objects.
func unauditable(compiled *policy.Compiled) string {
	if why := compiled.Unauditable(); why != "" {
		return "the policy cannot be evaluated on stored objects: " + why
	}
	return ""
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

// targetVersion differs between two versions of a policy or its params. It keeps the policy,
// so that no later one has the same address.
type targetVersion struct {
	compiled *policy.Compiled
	params   uint64
}

func versionOfTarget(compiled *policy.Compiled, from Params, spec *v1alpha1.WebhookPolicySpec) targetVersion {
	v := targetVersion{compiled: compiled}
	if spec.ReadsParams() {
		v.params = from.Version(spec.ParamKind, spec.ParamRefs()...)
	}
	return v
}

// forbidden returns what to do about a resource that may not be read.
func forbidden(gr schema.GroupResource) string {
	return fmt.Sprintf(`Ostiary may not list %s for the audit: create a ClusterRole with the label %s: "true" and the rule {apiGroups: [%q], resources: [%q], verbs: [list, watch]}`,
		gr, AggregationLabel, gr.Group, gr.Resource)
}
