package conformance

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// awaitServed waits until the API server serves what the
// CustomResourceDefinitions among some objects define.
func (s *side) awaitServed(ctx context.Context, objects []*unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for _, o := range objects {
		if o.GetKind() != "CustomResourceDefinition" {
			continue
		}
		group, _, _ := unstructured.NestedString(o.Object, "spec", "group")
		plural, _, _ := unstructured.NestedString(o.Object, "spec", "names", "plural")
		versions, _, _ := unstructured.NestedSlice(o.Object, "spec", "versions")
		for _, v := range versions {
			version, _, _ := unstructured.NestedString(v.(map[string]any), "name")
			if err := s.awaitResource(ctx, schema.GroupVersionResource{Group: group, Version: version, Resource: plural}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *side) awaitResource(ctx context.Context, resource schema.GroupVersionResource) error {
	for {
		_, err := s.dynamic.Resource(resource).List(ctx, metav1.ListOptions{Limit: 1})
		switch {
		case err == nil:
			return nil
		case !apierrors.IsNotFound(err):
			return fmt.Errorf("waiting for %s of %s: %w", resource, s.name, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s of %s: %w", resource, s.name, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}
