package typechecking

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/apiresources"
	"github.com/ostiary/ostiary/internal/typecheck"
)

// Served are the resources of an API server.
type Served = map[schema.GroupVersion][]metav1.APIResource

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
