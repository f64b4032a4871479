// Package tolerations reads and writes the tolerations of Pods.
package tolerations

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Toleration is a toleration of a Pod as JSON and as a Go value. A new one has no JSON.
type Toleration struct {
	corev1.Toleration
	stands any
}

// OfPod returns the tolerations of a Pod.
func OfPod(pod *unstructured.Unstructured) ([]Toleration, error) {
	list, _, err := unstructured.NestedFieldNoCopy(pod.Object, "spec", "tolerations")
	items, isList := list.([]any)
	if err != nil || (list != nil && !isList) {
		return nil, errors.New("spec.tolerations is not a list")
	}
	out := make([]Toleration, len(items))
	for i, item := range items {
		object, ok := item.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("spec.tolerations[%d] is not an object", i)
		}
		out[i].stands = object
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, &out[i].Toleration); err != nil {
			return nil, fmt.Errorf("reading spec.tolerations[%d]: %w", i, err)
		}
	}
	return out, nil
}

// New returns tolerations that are not in a Pod yet.
func New(list ...corev1.Toleration) []Toleration {
	out := make([]Toleration, len(list))
	for i := range list {
		out[i].Toleration = list[i]
	}
	return out
}

// PodWith returns a copy of a Pod with these tolerations, or the Pod itself if it has them.
// Existing tolerations keep their JSON.
func PodWith(pod *unstructured.Unstructured, list []Toleration) (*unstructured.Unstructured, error) {
	before, err := OfPod(pod)
	if err != nil {
		return nil, err
	}
	if equality.Semantic.DeepEqual(values(before), values(list)) {
		return pod, nil
	}
	items := make([]any, len(list))
	for i := range list {
		if items[i] = list[i].stands; items[i] != nil {
			continue
		}
		if items[i], err = runtime.DefaultUnstructuredConverter.ToUnstructured(&list[i].Toleration); err != nil {
			return nil, fmt.Errorf("writing a toleration: %w", err)
		}
	}
	out := pod.DeepCopy()
	if err := unstructured.SetNestedSlice(out.Object, items, "spec", "tolerations"); err != nil {
		return nil, fmt.Errorf("writing tolerations: %w", err)
	}
	return out, nil
}

func values(list []Toleration) []corev1.Toleration {
	out := make([]corev1.Toleration, len(list))
	for i := range list {
		out[i] = list[i].Toleration
	}
	return out
}

// Merge adds tolerations and omits those that another one covers; of equal ones the first
// stays.
func Merge(first, second []Toleration) []Toleration {
	all := append(append([]Toleration(nil), first...), second...)
	var merged []Toleration
next:
	for i := range all {
		for j := range merged {
			if covers(&merged[j].Toleration, &all[i].Toleration) {
				continue next
			}
		}
		for j := range all[i+1:] {
			later := &all[i+1+j].Toleration
			if !equality.Semantic.DeepEqual(all[i].Toleration, *later) && covers(later, &all[i].Toleration) {
				continue next
			}
		}
		merged = append(merged, all[i])
	}
	return merged
}

// AllCovered reports whether each toleration is covered by one of a list.
func AllCovered(list []Toleration, by []corev1.Toleration) bool {
next:
	for i := range list {
		for j := range by {
			if covers(&by[j], &list[i].Toleration) {
				continue next
			}
		}
		return false
	}
	return true
}

// covers reports whether one toleration covers another, as PodTolerationRestriction
// defines it: a missing operator covers only an equal toleration.
func covers(wide, t *corev1.Toleration) bool {
	if equality.Semantic.DeepEqual(wide, t) {
		return true
	}
	if t.Key != wide.Key && (wide.Key != "" || wide.Operator != corev1.TolerationOpExists) {
		return false
	}
	if t.Effect != wide.Effect && wide.Effect != "" {
		return false
	}
	if wide.Effect == corev1.TaintEffectNoExecute && wide.TolerationSeconds != nil &&
		(t.TolerationSeconds == nil || *t.TolerationSeconds > *wide.TolerationSeconds) {
		return false
	}
	switch wide.Operator {
	case corev1.TolerationOpEqual, "":
		return t.Operator == corev1.TolerationOpEqual && t.Value == wide.Value
	case corev1.TolerationOpExists:
		return true
	default:
		return false
	}
}

// Check validates tolerations as the API server validates those of a Pod.
func Check(list []corev1.Toleration, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range list {
		errs = append(errs, check(&list[i], at.Index(i))...)
	}
	return errs
}

func check(t *corev1.Toleration, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if t.Key != "" {
		if msgs := content.IsLabelKey(t.Key); len(msgs) > 0 {
			errs = append(errs, field.Invalid(at.Child("key"), t.Key, strings.Join(msgs, "; ")))
		}
	} else if t.Operator != corev1.TolerationOpExists {
		errs = append(errs, field.Invalid(at.Child("operator"), t.Operator, "write Exists where there is no key: it means all keys and values"))
	}
	if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
		errs = append(errs, field.Invalid(at.Child("effect"), t.Effect, "write NoExecute where there are tolerationSeconds"))
	}
	switch t.Operator {
	case corev1.TolerationOpEqual, "":
		if msgs := content.IsLabelValue(t.Value); len(msgs) > 0 {
			errs = append(errs, field.Invalid(at.Child("value"), t.Value, strings.Join(msgs, "; ")))
		}
	case corev1.TolerationOpExists:
		if t.Value != "" {
			errs = append(errs, field.Invalid(at.Child("value"), t.Value, "remove it: with Exists every value is tolerated"))
		}
	default:
		errs = append(errs, field.NotSupported(at.Child("operator"), t.Operator, []corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpExists}))
	}
	switch t.Effect {
	case "", corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
	default:
		errs = append(errs, field.NotSupported(at.Child("effect"), t.Effect, []corev1.TaintEffect{
			corev1.TaintEffectNoExecute, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule,
		}))
	}
	return errs
}
