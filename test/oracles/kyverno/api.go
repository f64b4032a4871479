package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	engineapi "github.com/kyverno/kyverno/pkg/engine/api"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// apiServer answers calls of policies with the objects of a question, and with the stored object of the
// request.
type apiServer struct {
	engineapi.Client // the engine calls only RawAbsPath

	objects []*unstructured.Unstructured
	stored  *unstructured.Unstructured
	// created is the name of the Namespace that the request creates. All others exist.
	created   string
	namespace func(name string) *corev1.Namespace
}

// setRequest makes the stored object of a request one of the objects.
func (a *apiServer) setRequest(request *admissionv1.AdmissionRequest) error {
	a.stored, a.created = nil, ""
	if request.Kind.Kind == "Namespace" && request.Operation == admissionv1.Create {
		a.created = request.Name
	}
	if len(request.OldObject.Raw) == 0 || request.SubResource != "" {
		return nil
	}
	a.stored = &unstructured.Unstructured{}
	if err := json.Unmarshal(request.OldObject.Raw, a.stored); err != nil {
		return fmt.Errorf("decoding the stored object: %w", err)
	}
	return nil
}

// path is that of a resource, or of an object.
type path struct {
	schema.GroupVersionResource
	namespace, name string
}

func parsePath(text string) (p path, ok bool) {
	clean, err := url.PathUnescape(text)
	if err != nil {
		return p, false
	}
	parts := strings.Split(strings.Trim(clean, "/ "), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		p.Version, parts = parts[1], parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		p.Group, p.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return p, false
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		p.namespace, parts = parts[1], parts[2:]
	}
	p.Resource = parts[0]
	if len(parts) == 2 {
		p.name = parts[1]
	}
	return p, len(parts) < 3
}

// RawAbsPath implements engineapi.RawClient.
func (a *apiServer) RawAbsPath(_ context.Context, text, method string, _ io.Reader) ([]byte, error) {
	p, ok := parsePath(text)
	if !ok || method != "" && method != "GET" {
		return nil, fmt.Errorf("%s of %q is no read of objects", method, text)
	}
	if p.GroupVersionResource == corev1.SchemeGroupVersion.WithResource("namespaces") && p.name != "" && p.name != a.created {
		return json.Marshal(a.namespace(p.name))
	}
	found := a.find(p)
	if p.name == "" {
		items := make([]any, len(found))
		for i, o := range found {
			items[i] = o.Object
		}
		return json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
	}
	if len(found) == 0 {
		return nil, apierrors.NewNotFound(p.GroupResource(), p.name)
	}
	return json.Marshal(found[0].Object)
}

// find returns the objects of a path, by namespace and name.
func (a *apiServer) find(p path) (found []*unstructured.Unstructured) {
	all := slices.Clone(a.objects)
	if s := a.stored; s != nil {
		all = slices.DeleteFunc(all, func(o *unstructured.Unstructured) bool {
			return o.GroupVersionKind().GroupKind() == s.GroupVersionKind().GroupKind() &&
				o.GetNamespace() == s.GetNamespace() && o.GetName() == s.GetName()
		})
		all = append(all, s)
	}
	for _, o := range all {
		resource, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
		if resource.GroupResource() == p.GroupResource() && (p.namespace == "" || o.GetNamespace() == p.namespace) &&
			(p.name == "" || o.GetName() == p.name) {
			found = append(found, o)
		}
	}
	slices.SortFunc(found, func(x, y *unstructured.Unstructured) int {
		return cmp.Or(cmp.Compare(x.GetNamespace(), y.GetNamespace()), cmp.Compare(x.GetName(), y.GetName()))
	})
	return found
}
