package validation

import (
	"regexp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// unstable matches versions that a later release can remove.
var unstable = regexp.MustCompile(`^v[0-9]+(alpha|beta)[0-9]+$`)

// served warns about rules with names that the API server does not serve, or may soon not
// serve.
func (w *warner) served(spec *v1alpha1.WebhookPolicySpec, facts ClusterInfo, at *field.Path) {
	for i := range rulesOf(spec) {
		rule := &rulesOf(spec)[i].Rule
		here := at.Child("matchConstraints", "resourceRules").Index(i)
		if facts.Resources != nil {
			w.unknown(rule, facts, here)
			w.unmatched(&rulesOf(spec)[i].RuleWithOperations, facts, here)
			w.virtual(rule, here)
		}
		w.unstable(rule, facts, here.Child("apiVersions"))
	}
}

// Unserved reports whether a rule names something that the API server does not serve, as
// far as is known. The facts can be older than a CustomResourceDefinition that was
// applied with the policy.
func Unserved(p *v1alpha1.WebhookPolicy, facts ClusterInfo) bool {
	if facts.Resources == nil {
		return false
	}
	var w warner
	for i := range rulesOf(&p.Spec) {
		w.unknown(&rulesOf(&p.Spec)[i].Rule, facts, nil)
	}
	return len(w.warnings) > 0
}

// virtual warns of reviews, for which API servers with the feature gate
// ExcludeAdmissionWebhookVirtualResources, on by default since Kubernetes 1.37, call no webhook.
// Only rules that name the group reach them.
func (w *warner) virtual(rule *admissionregistrationv1.Rule, at *field.Path) {
	for i, group := range rule.APIGroups {
		for _, review := range reviewsOf(group) {
			if slices.ContainsFunc(rule.Resources, func(entry string) bool { return reaches(entry, review) }) {
				w.warn(at.Child("apiGroups").Index(i),
					"API servers since Kubernetes 1.37 do not call webhooks for the reviews of %s: there the "+
						"policy has no effect on them", group)
				break
			}
		}
	}
}

// reviewsOf are the resources that API servers exclude from webhooks, by group. They
// exclude them from native policies too.
func reviewsOf(group string) []string {
	switch group {
	case authenticationv1.GroupName:
		return []string{"selfsubjectreviews", "tokenreviews"}
	case authorizationv1.GroupName:
		return []string{"localsubjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews", "subjectaccessreviews"}
	}
	return nil
}

// unstable warns about a version that a later release may not serve. A group of another
// project without a stable version needs no warning.
func (w *warner) unstable(rule *admissionregistrationv1.Rule, facts ClusterInfo, at *field.Path) {
	for i, version := range rule.APIVersions {
		if !unstable.MatchString(version) || slices.Contains(rule.APIVersions, wildcard) {
			continue
		}
		switch stable := facts.stable(rule); {
		case stable != "" && !slices.Contains(rule.APIVersions, stable):
			w.warn(at.Index(i), "%q is not stable, and a later release may not serve it: name %q", version, stable)
		case stable == "" && slices.ContainsFunc(rule.APIGroups, ofKubernetes):
			w.warn(at.Index(i), "%q is not stable, and a later release of Kubernetes may not serve it", version)
		}
	}
}

// ofKubernetes reports whether a group is one of Kubernetes itself.
func ofKubernetes(group string) bool {
	return group != wildcard && (!strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io"))
}

// stable returns a stable version that serves a resource of the rule.
func (f ClusterInfo) stable(rule *admissionregistrationv1.Rule) string {
	var versions []string
	for _, gv := range f.matching(rule.APIGroups, []string{wildcard}) {
		if !unstable.MatchString(gv.Version) && slices.ContainsFunc(rule.Resources, func(entry string) bool { return f.has(gv, entry) }) {
			versions = append(versions, gv.Version)
		}
	}
	if len(versions) == 0 {
		return ""
	}
	return slices.Min(versions)
}

// matching returns the served versions that match the groups and versions of a rule.
func (f ClusterInfo) matching(groups, versions []string) []schema.GroupVersion {
	var out []schema.GroupVersion
	for gv := range f.Resources {
		if anyOf(groups, gv.Group) && anyOf(versions, gv.Version) {
			out = append(out, gv)
		}
	}
	return out
}

func anyOf(list []string, value string) bool {
	return slices.Contains(list, wildcard) || slices.Contains(list, value)
}

// isUnknown reports whether the resources of a version are not known.
func (f ClusterInfo) isUnknown(gv schema.GroupVersion) bool { return f.Resources[gv] == nil }

func (f ClusterInfo) has(gv schema.GroupVersion, entry string) bool {
	return slices.ContainsFunc(f.Resources[gv], func(r metav1.APIResource) bool { return reaches(entry, r.Name) })
}
