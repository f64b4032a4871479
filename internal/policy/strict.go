package policy

import (
	"fmt"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
)

// strict refuses what a mutation made of an object if its Go type, where that
// is known, has no place for it. The API server drops unknown fields without a
// word, and a slip of the pen in a mutation would never be noticed. What was
// unknown before the mutation is left alone: the API server may be newer than
// the Go type.
func strict(before, after runtime.Object, objects admission.ObjectInterfaces) error {
	u, ok := after.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("internal error: a mutation made a %T", after)
	}
	unfit := misfit(u, objects)
	if unfit == nil {
		return nil
	}
	var old error
	if b, ok := before.(*unstructured.Unstructured); ok {
		old = misfit(b, objects)
	}
	if unfit = without(unfit, old); unfit == nil {
		return nil
	}
	return fmt.Errorf("the result is no valid %s: %w", u.GetKind(), unfit)
}

// misfit says what of an object has no place in its Go type.
func misfit(u *unstructured.Unstructured, objects admission.ObjectInterfaces) error {
	typed, err := objects.GetObjectCreater().New(u.GroupVersionKind())
	if err != nil {
		return nil //nolint:nilerr // a kind without a Go type, which the API server checks by its schema
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, typed, true)
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
