package doctor

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/internal/cli/output"
)

// clientLimit is the time in seconds after which kubelets and leaders give up renewing
// their Leases, and many other clients their requests.
const clientLimit = 10

func (c *checker) timeout(w *webhook) {
	if t := w.timeoutSeconds(); t > clientLimit {
		c.about(w, Warning, "timeout-long", "timeoutSeconds", fmt.Sprintf("requests wait up to %d seconds while the webhook does not answer, longer than many clients do", t),
			fmt.Sprintf("set timeoutSeconds to %d or less", clientLimit))
	}
}

func (c *checker) sideEffects(w *webhook) {
	effects := admissionregistrationv1.SideEffectClassUnknown
	if w.SideEffects != nil {
		effects = *w.SideEffects
	}
	if effects == admissionregistrationv1.SideEffectClassUnknown || effects == admissionregistrationv1.SideEffectClassSome {
		c.about(w, Error, "side-effects", "sideEffects", fmt.Sprintf("sideEffects is %s: API servers refuse every dry-run request that matches", effects),
			"set None, or NoneOnDryRun if the webhook honours dryRun")
	}
}

// versions finds versions of resources that matchPolicy Exact misses.
func (c *checker) versions(w *webhook) {
	if !w.exact() {
		return
	}
	for i, rule := range w.Rules {
		var missed []string
		for _, p := range patternsOf(rule) {
			for _, version := range c.served(p) {
				if !w.matchesVersion(p, version) {
					missed = append(missed, fmt.Sprintf("%s of %s", p.resource, schema.GroupVersion{Group: p.group, Version: version}))
				}
			}
		}
		if len(missed) > 0 {
			c.about(w, Warning, "exact-misses-versions", rulePath(i, "apiVersions"), fmt.Sprintf("matchPolicy is Exact, and API servers also serve %s: requests for these are not sent to the webhook", output.Some(missed)),
				"set matchPolicy: Equivalent, or name every version")
		}
	}
}

// patternsOf returns the resources that a rule names without wildcards.
func patternsOf(rule admissionregistrationv1.RuleWithOperations) []pattern {
	var out []pattern
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			if group != wildcard && !strings.Contains(resource, wildcard) {
				out = append(out, pattern{group, resource})
			}
		}
	}
	return out
}

// matchesVersion reports whether any rule of the webhook names a version of a resource.
func (w *webhook) matchesVersion(p pattern, version string) bool {
	return slices.ContainsFunc(w.Rules, func(rule admissionregistrationv1.RuleWithOperations) bool {
		return covers(rule.APIGroups, p.group) && covers(rule.APIVersions, version) && slices.ContainsFunc(rule.Resources, func(resource string) bool {
			return commonResource(resource, p.resource) == p.resource
		})
	})
}

// served returns the versions of a resource that API servers serve, sorted.
func (c *checker) served(p pattern) []string {
	var out []string
	for gv, list := range c.Resources {
		if gv.Group != p.group {
			continue
		}
		for _, r := range list {
			if r.Name == p.resource {
				out = append(out, gv.Version)
			}
		}
	}
	for i := range c.CustomResourceDefinitions {
		crd := &c.CustomResourceDefinitions[i].Spec
		if crd.Group != p.group || crd.Names.Plural != p.resource {
			continue
		}
		for _, v := range crd.Versions {
			if v.Served {
				out = append(out, v.Name)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// virtual finds rules for reviews.
func (c *checker) virtual(w *webhook) {
	for i, rule := range w.Rules {
		var reviews []string
		for _, p := range patternsOf(rule) {
			if isReview(p) {
				reviews = append(reviews, p.String())
			}
		}
		switch {
		case len(reviews) == 0:
		case c.atLeast(excludesReviews):
			c.about(w, Warning, "virtual-resources", rulePath(i, "resources"), fmt.Sprintf("API servers since Kubernetes 1.%d call no webhook for %s", excludesReviews, output.Some(reviews)),
				"remove them from the rules, and restrict access with RBAC or an authorization webhook instead")
		default:
			c.about(w, Warning, "virtual-resources", rulePath(i, "resources"), fmt.Sprintf("API servers of Kubernetes 1.%d and later will call no webhook for %s", excludesReviews, output.Some(reviews)),
				"do not rely on them after the upgrade: restrict access with RBAC or an authorization webhook instead")
		}
	}
}

// isReview reports whether a resource is one that API servers do not store.
func isReview(p pattern) bool {
	switch p.group {
	case authenticationv1.GroupName:
		return p.resource == "tokenreviews" || p.resource == "selfsubjectreviews"
	case authorizationv1.GroupName:
		return slices.Contains([]string{"subjectaccessreviews", "localsubjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews"}, p.resource)
	}
	return false
}

// excluded finds rules for the configuration of admission, which API servers send to no
// webhook, so that a broken one can be corrected.
func (c *checker) excluded(w *webhook) {
	for i, rule := range w.Rules {
		if slices.Contains(rule.APIGroups, admissionregistrationv1.GroupName) {
			c.about(w, Warning, "never-called", rulePath(i, "apiGroups"), fmt.Sprintf("API servers call no webhook for configurations and policies of %s", admissionregistrationv1.GroupName),
				"remove the group, and restrict access with RBAC instead")
		}
	}
}

// unserved finds rules that match no resource.
func (c *checker) unserved(w *webhook) {
	if c.Resources == nil {
		return
	}
	for i, rule := range w.Rules {
		patterns := patternsOf(rule)
		if len(patterns) < len(rule.APIGroups)*len(rule.Resources) || len(patterns) == 0 || slices.ContainsFunc(patterns, func(p pattern) bool { return c.mayServe(rule, w.exact(), p) }) {
			continue
		}
		var names []string
		for _, p := range patterns {
			names = append(names, p.String())
		}
		c.about(w, Info, "rule-unserved", rulePath(i, "resources"), "API servers do not serve "+output.Some(names)+" in these versions",
			"correct the names, or remove the rule if its CustomResourceDefinition was removed")
	}
}

// mayServe reports whether a resource is served in a version of a rule, or unknown.
func (c *checker) mayServe(rule admissionregistrationv1.RuleWithOperations, exact bool, p pattern) bool {
	for gv, list := range c.Resources {
		if gv.Group == p.group && list == nil {
			return true // its discovery failed
		}
	}
	return slices.ContainsFunc(c.served(p), func(version string) bool { return !exact || covers(rule.APIVersions, version) })
}
