package typechecking

import (
	"context"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/apiresources"
	"github.com/ostiary/ostiary/internal/plugins"
	"github.com/ostiary/ostiary/internal/typecheck"
)

// maxKinds bounds the kinds for which a policy is checked, as in the API server.
const maxKinds = 10

// Served are the resources of an API server.
type Served = map[schema.GroupVersion][]metav1.APIResource

// kindsOf returns the kinds of the resources that the rules of a policy name. A rule for
// all groups or all resources is for objects of any kind, and names none. complete is
// false if a rule names resources that are not served.
func kindsOf(p *v1alpha1.WebhookPolicy, served Served) (out []apiresources.Kind, complete bool) {
	match := plugins.Resolve(p).Policy.Spec.MatchConstraints
	if match == nil {
		return nil, true
	}
	complete = true
	for _, r := range match.ResourceRules {
		if slices.Contains(r.APIGroups, "*") {
			continue
		}
		rule := admissionregistrationv1.Rule{APIGroups: r.APIGroups, APIVersions: r.APIVersions, Resources: named(r.Resources)}
		found := apiresources.KindsIn(served, rule, maxKinds)
		complete = complete && (len(found) > 0 || len(rule.Resources) == 0)
		for _, kind := range found {
			if len(out) < maxKinds && !slices.ContainsFunc(out, func(k apiresources.Kind) bool { return k.GroupVersionKind == kind.GroupVersionKind }) {
				out = append(out, kind)
			}
		}
	}
	return out, complete
}

// named are the entries of a rule that name a resource or a subresource.
func named(entries []string) []string {
	var out []string
	for _, entry := range entries {
		if name, sub, _ := strings.Cut(entry, "/"); sub == "*" {
			entry = name
		}
		if !strings.Contains(entry, "*") {
			out = append(out, entry)
		}
	}
	return out
}

// known adds the schemas of kinds. complete is false if there is one without a schema.
func (c *Checker) known(ctx context.Context, kinds ...apiresources.Kind) (out []typecheck.Kind, complete bool) {
	complete = true
	for _, kind := range kinds {
		found, err := c.find(ctx, kind)
		if err != nil {
			c.log.V(1).Info("a kind is not type-checked", "kind", kind.String(), "error", err.Error())
		}
		complete = complete && found.Document != nil
		out = append(out, found)
	}
	return out, complete
}

// find finds the schema of a kind. That of a subresource may be in the document of its
// resource, as the one of Scale is.
func (c *Checker) find(ctx context.Context, kind apiresources.Kind) (typecheck.Kind, error) {
	out := typecheck.Kind{GroupVersionKind: kind.GroupVersionKind}
	for _, gv := range []schema.GroupVersion{kind.Served, kind.GroupVersion()} {
		document, err := c.documents.get(ctx, gv)
		if err != nil {
			return out, err
		}
		if document != nil && document.Has(kind.GroupVersionKind) {
			out.Document = document
			return out, nil
		}
	}
	return out, nil
}

// params is the kind of the params of a policy. A policy without params needs no schema.
func (c *Checker) params(ctx context.Context, p *v1alpha1.WebhookPolicy) (kind typecheck.Kind, complete bool) {
	if p.Spec.ParamKind == nil {
		return kind, true
	}
	gv, err := schema.ParseGroupVersion(p.Spec.ParamKind.APIVersion)
	if err != nil {
		return kind, true
	}
	found, complete := c.known(ctx, apiresources.Kind{GroupVersionKind: gv.WithKind(p.Spec.ParamKind.Kind), Served: gv})
	return found[0], complete
}
