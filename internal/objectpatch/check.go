package objectpatch

import (
	"fmt"
	"regexp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
)

// CheckResult converts the result of a mutation as the API server does, if the Go type
// of the object is known. It rejects fields that the type does not have: the API server
// drops them silently, and a typing error would not be found. It removes what the Go type
// omits when empty. If fields were unknown before the mutation, the result stays
// unchanged, because the API server can be newer than the Go type. Without a change it
// returns the object before.
func CheckResult(before, after runtime.Object, objects admission.ObjectInterfaces) (runtime.Object, error) {
	b, okBefore := before.(*unstructured.Unstructured)
	a, okAfter := after.(*unstructured.Unstructured)
	if !okBefore || !okAfter {
		return nil, fmt.Errorf("internal error: a mutation made a %T of a %T", after, before)
	}
	var c changes
	changed := c.object(b.Object, a.Object)
	switch {
	case !c.any:
		return before, nil
	case a.GroupVersionKind() == b.GroupVersionKind() && c.fit(a.GroupVersionKind(), b.Object, changed, objects):
		return after, nil
	}
	return checkAll(b, a, objects)
}

// fit reports whether the Go type of a kind has all of the changed fields and omits none that became empty. The fields do
// not depend on each other.
func (c *changes) fit(kind schema.GroupVersionKind, before, changed map[string]any, objects admission.ObjectInterfaces) bool {
	if len(changed) == 0 {
		return true
	}
	typed, unfit := typedOf(kind, changed, objects)
	if unfit != nil || !c.emptied || typed == nil {
		return unfit == nil
	}
	held, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		return false
	}
	_, omits := pruneEmptyMap(changed, held, before)
	return !omits
}

func checkAll(before, after *unstructured.Unstructured, objects admission.ObjectInterfaces) (runtime.Object, error) {
	typed, unfit := typedOf(after.GroupVersionKind(), after.Object, objects)
	switch {
	case typed == nil:
		return after, nil
	case unfit == nil:
		pruned := pruneEmpty(before, after, typed)
		if Equal(before, pruned) {
			return before, nil
		}
		return pruned, nil
	}
	_, old := typedOf(before.GroupVersionKind(), before.Object, objects)
	if unfit = withoutKnown(unfit, old); unfit != nil {
		return nil, fmt.Errorf("the result is no valid %s: %w", after.GetKind(), withPath(after.GroupVersionKind(), after.Object, objects, unfit))
	}
	return after, nil
}

// typedOf converts an object to its Go type, or returns nil for a kind without one, which
// the API server checks by its schema. The error names the fields that do not fit.
func typedOf(kind schema.GroupVersionKind, content map[string]any, objects admission.ObjectInterfaces) (runtime.Object, error) {
	typed, err := objects.GetObjectCreater().New(kind)
	if err != nil {
		return nil, nil //nolint:nilerr,nilnil // no Go type, no error
	}
	return typed, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(content, typed, true)
}

var listIndex = regexp.MustCompile(`\[\d+\]`)

// withoutKnown returns the unknown fields that the old object does not have at any index of
// their lists. It returns none if the old object could not be converted.
func withoutKnown(unfit, old error) error {
	if old == nil {
		return unfit
	}
	known, ok := runtime.AsStrictDecodingError(old)
	if !ok {
		return nil
	}
	found, ok := runtime.AsStrictDecodingError(unfit)
	if !ok {
		return unfit
	}
	seen := map[string]bool{}
	for _, err := range known.Errors() {
		seen[listIndex.ReplaceAllString(err.Error(), "")] = true
	}
	left := slices.DeleteFunc(slices.Clone(found.Errors()), func(err error) bool { return seen[listIndex.ReplaceAllString(err.Error(), "")] })
	if len(left) == 0 {
		return nil
	}
	return runtime.NewStrictDecodingError(left)
}

// CheckIdentity rejects a mutation that the API server would reject without the name
// of the policy. On CREATE, the API server accepts another name.
func CheckIdentity(operation admission.Operation, before, after runtime.Object) error {
	was, okBefore := before.(metav1.Object)
	is, okAfter := after.(metav1.Object)
	switch {
	case !okBefore || !okAfter:
		return nil
	case was.GetNamespace() != is.GetNamespace():
		const text = "metadata.namespace: the mutation changes it from %q to %q; the namespace of an object is immutable"
		return fmt.Errorf(text, was.GetNamespace(), is.GetNamespace())
	case operation != admission.Create && was.GetName() != is.GetName():
		const text = "metadata.name: the mutation changes it from %q to %q; the name of an existing object is immutable"
		return fmt.Errorf(text, was.GetName(), is.GetName())
	}
	return nil
}
