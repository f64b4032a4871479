package policy

import (
	"fmt"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
)

// validateResult makes of a mutation's result what the API server would, where the Go type
// of the object is known. It refuses what that has no place for: the API server
// drops unknown fields without a word, and a slip of the pen in a mutation would
// never be noticed. And it takes out what the Go type leaves out when it is
// empty. What was unknown before the mutation is left alone, and then all of
// the result is: the API server may be newer than the Go type. The result is the
// object before where nothing changed.
func validateResult(before, after runtime.Object, objects admission.ObjectInterfaces) (runtime.Object, error) {
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
	case !c.emptied && a.GroupVersionKind() == b.GroupVersionKind() && holds(a.GroupVersionKind(), changed, objects):
		return after, nil
	}
	return validateAll(b, a, objects)
}

// holds reports whether a kind has a place for all of some fields. What the Go
// type makes of a field does not depend on the others.
func holds(kind schema.GroupVersionKind, fields map[string]any, objects admission.ObjectInterfaces) bool {
	if len(fields) == 0 {
		return true
	}
	_, unfit := typedOf(kind, fields, objects)
	return unfit == nil
}

func validateAll(before, after *unstructured.Unstructured, objects admission.ObjectInterfaces) (runtime.Object, error) {
	typed, unfit := typedOf(after.GroupVersionKind(), after.Object, objects)
	switch {
	case typed == nil:
		return after, nil
	case unfit == nil:
		settled := pruneEmpty(before, after, typed)
		if same(before, settled) {
			return before, nil
		}
		return settled, nil
	}
	_, old := typedOf(before.GroupVersionKind(), before.Object, objects)
	if unfit = without(unfit, old); unfit != nil {
		return nil, fmt.Errorf("the result is no valid %s: %w", after.GetKind(), withPath(after.GroupVersionKind(), after.Object, objects, unfit))
	}
	return after, nil
}

// typedOf makes a Go value of an object's content, or nil for a kind that has no
// Go type here; the API server checks those by their schema. The error says what
// of the object has no place in it.
func typedOf(kind schema.GroupVersionKind, content map[string]any, objects admission.ObjectInterfaces) (runtime.Object, error) {
	typed, err := objects.GetObjectCreater().New(kind)
	if err != nil {
		return nil, nil //nolint:nilerr,nilnil // there is nothing to be wrong
	}
	return typed, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(content, typed, true)
}

var position = regexp.MustCompile(`\[\d+\]`)

// without leaves the unknown fields that are not among the old ones, at
// whatever position in their lists. Where the old object could not be read at
// all, nothing can be said of the new one.
func without(unfit, old error) error {
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
		seen[position.ReplaceAllString(err.Error(), "")] = true
	}
	left := slices.DeleteFunc(slices.Clone(found.Errors()), func(err error) bool { return seen[position.ReplaceAllString(err.Error(), "")] })
	if len(left) == 0 {
		return nil
	}
	return runtime.NewStrictDecodingError(left)
}
