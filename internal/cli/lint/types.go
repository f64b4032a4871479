package lint

import (
	"context"
	"encoding/json"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/advice"
	"github.com/ostiary/ostiary/internal/apiresources"
	"github.com/ostiary/ostiary/internal/kubernetes"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/typecheck"
)

// types checks expressions against the schemas of the kinds that policies match: those of
// Kubernetes, and those of CustomResourceDefinitions.
type types struct {
	engine  policy.Engine
	checker *typecheck.Checker
	schemas *kubernetes.Schemas
	builtin map[apischema.GroupVersion]*typecheck.Document
	custom  map[apischema.GroupVersionKind]*typecheck.Document
}

func newTypes(e policy.Engine, definitions []*apiextensionsv1.CustomResourceDefinition) (*types, error) {
	t := &types{engine: e, builtin: map[apischema.GroupVersion]*typecheck.Document{}, custom: map[apischema.GroupVersionKind]*typecheck.Document{}}
	var err error
	if t.checker, err = typecheck.New(); err != nil {
		return nil, err
	}
	if t.schemas, err = kubernetes.NewSchemas(e); err != nil {
		return nil, err
	}
	for _, d := range definitions {
		for _, v := range d.Spec.Versions {
			kind := apischema.GroupVersionKind{Group: d.Spec.Group, Version: v.Name, Kind: d.Spec.Names.Kind}
			if t.custom[kind], err = documentOf(d, v.Name); err != nil {
				return nil, err
			}
		}
	}
	return t, nil
}

// documentOf returns the document that an API server publishes for a version of a
// CustomResourceDefinition.
func documentOf(d *apiextensionsv1.CustomResourceDefinition, version string) (*typecheck.Document, error) {
	document, err := builder.BuildOpenAPIV3(d, version, builder.Options{AllowNonStructural: true})
	if err != nil {
		return nil, fmt.Errorf("reading the schema of CustomResourceDefinition %s: %w", d.Name, err)
	}
	text, err := json.Marshal(document)
	if err != nil {
		return nil, fmt.Errorf("encoding the schema of CustomResourceDefinition %s: %w", d.Name, err)
	}
	return typecheck.ParseDocument(text)
}

// check returns the warnings about a policy that compiles.
func (t *types) check(ctx context.Context, p *v1alpha1.WebhookPolicy, served apiresources.Lists) ([]advice.Warning, error) {
	matched, _ := typecheck.KindsOf(p, served)
	kinds := make([]typecheck.Kind, len(matched))
	for i, k := range matched {
		var err error
		if kinds[i], err = t.kind(k); err != nil {
			return nil, err
		}
	}
	var others typecheck.Others
	for _, k := range typecheck.StoredKindsOf(p, served) {
		kind, err := t.kind(k)
		if err != nil {
			return nil, err
		}
		others.Stored = append(others.Stored, kind)
	}
	if kind := p.Spec.ParamKind; kind != nil {
		gvk := apischema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind)
		var err error
		if others.Params, err = t.kind(apiresources.Kind{GroupVersionKind: gvk, Served: gvk.GroupVersion()}); err != nil {
			return nil, err
		}
	}
	return append(t.checker.Versions(p, t.engine), t.checker.Check(ctx, p, kinds, others)...), nil
}

// kind adds the schema of a kind, if it is known.
func (t *types) kind(k apiresources.Kind) (typecheck.Kind, error) {
	out := typecheck.Kind{GroupVersionKind: k.GroupVersionKind, Document: t.custom[k.GroupVersionKind]}
	for _, gv := range []apischema.GroupVersion{k.Served, k.GroupVersion()} {
		if out.Document != nil {
			break
		}
		document, err := t.document(gv)
		if err != nil {
			return out, err
		}
		if document != nil && document.Has(k.GroupVersionKind) {
			out.Document = document
		}
	}
	return out, nil
}

func (t *types) document(gv apischema.GroupVersion) (*typecheck.Document, error) {
	if document, ok := t.builtin[gv]; ok {
		return document, nil
	}
	document, err := t.schemas.Document(gv)
	if err == nil {
		t.builtin[gv] = document
	}
	return document, err
}
