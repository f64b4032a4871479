package policy

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kindOfObject is the kind of the object that policies see.
func (on *subject) kindOfObject() schema.GroupVersionKind {
	if on.template != "" {
		return corev1.SchemeGroupVersion.WithKind("Pod")
	}
	return on.versioned.VersionedKind
}

// atTemplate adds the path of the template to an error.
func (on *subject) atTemplate(err error) error {
	if on.template == "" {
		return err
	}
	return fmt.Errorf("%s: %w", on.template, err)
}

// templateMetadata are the metadata of a template that controllers copy to Pods.
var templateMetadata = []string{"labels", "annotations", "finalizers"} //nolint:gochecknoglobals // a constant

// checkTemplate rejects a mutation of a template that has no effect on its Pods.
func (on *subject) checkTemplate(before, after runtime.Object) error {
	was, okBefore := before.(*unstructured.Unstructured)
	is, okAfter := after.(*unstructured.Unstructured)
	if on.template == "" || !okBefore || !okAfter {
		return nil
	}
	if field := differentExcept(was.Object, is.Object, "metadata", "spec"); field != "" {
		return errNotInTemplate(field)
	}
	old, _ := was.Object["metadata"].(map[string]any)
	current, _ := is.Object["metadata"].(map[string]any)
	if field := differentExcept(old, current, templateMetadata...); field != "" {
		return errNotInTemplate("metadata." + field)
	}
	return nil
}

func errNotInTemplate(field string) error {
	return fmt.Errorf("%s cannot be changed in a pod template: controllers use its spec and its %s", field, "metadata."+strings.Join(templateMetadata, ", metadata."))
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

// changedObject returns the object of a request with the changes of its subjects: the Pods of
// templates are written to the templates.
func changedObject(r *request, matched []matchedTarget) runtime.Object {
	out := r.whole.versioned.VersionedObject.Object()
	done := map[*subject]bool{}
	for _, m := range matched {
		if m.template == nil || done[m.on] {
			continue
		}
		before := m.on.versioned.Attributes.GetObject()
		after, ok := m.on.versioned.VersionedObject.Object().(*unstructured.Unstructured)
		if !ok || after == before {
			continue
		}
		done[m.on] = true
		workload, _ := out.(*unstructured.Unstructured) // it has a template
		out = &unstructured.Unstructured{Object: replaced(workload.Object, m.template.path, after.Object)}
	}
	return out
}

// replaced returns a tree with the spec and the metadata of a Pod in the template at a
// path.
func replaced(tree map[string]any, path []string, pod map[string]any) map[string]any {
	out := maps.Clone(tree)
	if len(path) > 0 {
		inner, _ := tree[path[0]].(map[string]any) // the template was found there
		out[path[0]] = replaced(inner, path[1:], pod)
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
	for _, name := range templateMetadata {
		value, present := changed[name]
		set(metadata, name, value, present)
	}
	if len(metadata) > 0 || tree["metadata"] != nil {
		out["metadata"] = metadata
	}
	return out
}
