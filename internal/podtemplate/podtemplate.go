// Package podtemplate has the pod templates of workloads as JSON trees: it makes the Pod that a template produces,
// and writes the changes of a Pod to its template.
package podtemplate

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// At returns the template at a path, nil if there is none.
func At(object runtime.Object, path []string) (map[string]any, error) {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return nil, nil //nolint:nilnil // no object has no template
	}
	tree := u.Object
	for i, name := range path {
		value := tree[name]
		if value == nil {
			return nil, nil //nolint:nilnil // no template
		}
		if tree, ok = value.(map[string]any); !ok {
			return nil, fmt.Errorf("%s is a %T and no object, so it is no pod template", strings.Join(path[:i+1], "."), value)
		}
	}
	for _, name := range []string{"metadata", "spec"} {
		if value := tree[name]; value != nil {
			if _, ok := value.(map[string]any); !ok {
				return nil, fmt.Errorf("%s.%s is a %T and no object, so it is no part of a pod template",
					strings.Join(path, "."), name, value)
			}
		}
	}
	return tree, nil
}

// Pod returns the Pod of a template in a namespace; no template has no Pod.
func Pod(template map[string]any, namespace string) runtime.Object {
	if template == nil {
		return nil
	}
	written, _ := template["metadata"].(map[string]any) // checked before
	metadata := make(map[string]any, len(written)+1)
	maps.Copy(metadata, written)
	metadata["namespace"] = namespace
	pod := map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
	if spec, ok := template["spec"]; ok {
		pod["spec"] = spec
	}
	return &unstructured.Unstructured{Object: pod}
}

// copiedMetadata are the metadata of a template that controllers copy to Pods.
var copiedMetadata = []string{"labels", "annotations", "finalizers"} //nolint:gochecknoglobals // a constant

// CheckChange rejects a change of the Pod of a template that the template cannot have, so that it has no effect on
// its Pods.
func CheckChange(before, after runtime.Object) error {
	was, okBefore := before.(*unstructured.Unstructured)
	is, okAfter := after.(*unstructured.Unstructured)
	if !okBefore || !okAfter {
		return nil
	}
	if field := differentExcept(was.Object, is.Object, "metadata", "spec"); field != "" {
		return OutsideError(field)
	}
	old, _ := was.Object["metadata"].(map[string]any)
	current, _ := is.Object["metadata"].(map[string]any)
	if field := differentExcept(old, current, copiedMetadata...); field != "" {
		return OutsideError("metadata." + field)
	}
	return nil
}

// OutsideError returns the error for a field of a Pod that a template does not have.
func OutsideError(field string) error {
	return fmt.Errorf("%s cannot be changed in a pod template: controllers use its spec and its metadata.%s",
		field, strings.Join(copiedMetadata, ", metadata."))
}

// differentExcept returns the first member that differs and is not one of some.
func differentExcept(a, b map[string]any, except ...string) string {
	names := maps.Clone(a)
	if names == nil {
		names = map[string]any{}
	}
	maps.Copy(names, b)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if !slices.Contains(except, name) && !reflect.DeepEqual(a[name], b[name]) {
			return name
		}
	}
	return ""
}

// Replace returns a copy of a workload with the spec and the metadata of a Pod in the template at a path.
func Replace(tree map[string]any, path []string, pod map[string]any) map[string]any {
	out := maps.Clone(tree)
	if len(path) > 0 {
		inner, _ := tree[path[0]].(map[string]any) // the template was found there
		out[path[0]] = Replace(inner, path[1:], pod)
		return out
	}
	set := func(into map[string]any, name string, value any, present bool) {
		if present {
			into[name] = value
		} else {
			delete(into, name)
		}
	}
	spec, present := pod["spec"]
	set(out, "spec", spec, present)
	changed, _ := pod["metadata"].(map[string]any)
	metadata, _ := tree["metadata"].(map[string]any)
	if metadata = maps.Clone(metadata); metadata == nil {
		metadata = map[string]any{}
	}
	for _, name := range copiedMetadata {
		value, present := changed[name]
		set(metadata, name, value, present)
	}
	if len(metadata) > 0 || tree["metadata"] != nil {
		out["metadata"] = metadata
	}
	return out
}
