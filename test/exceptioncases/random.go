package exceptioncases

import (
	"maps"
	"math/rand/v2"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// Vocabulary is what random exceptions are about. Entries that are there twice are chosen more often.
type Vocabulary struct {
	Policies, Groups, Resources, Names []string
	Validations                        [][]string
	// Labels are the values by key.
	Labels map[string][]string
}

// Random writes exceptions at random. The same generator of numbers makes the same ones.
type Random struct {
	*rand.Rand
	Vocabulary
}

// OneOf returns one of some values.
func OneOf[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// Spec returns an exception without an end.
func (r Random) Spec() v1alpha1.WebhookPolicyExceptionSpec {
	s := v1alpha1.WebhookPolicyExceptionSpec{
		PolicyName: OneOf(r.Rand, r.Policies...), Validations: OneOf(r.Rand, r.Validations...), Reason: "at random",
	}
	for range 1 + r.IntN(2) {
		s.Match = append(s.Match, r.match())
	}
	if r.IntN(2) == 0 {
		s.Condition = OneOf(r.Rand, slices.Sorted(maps.Keys(conditions()))...)
	}
	return s
}

func (r Random) match() v1alpha1.ExceptionMatch {
	m := v1alpha1.ExceptionMatch{Group: OneOf(r.Rand, r.Groups...), Resources: []string{OneOf(r.Rand, r.Resources...)}}
	if other := OneOf(r.Rand, r.Resources...); r.IntN(4) == 0 && other != m.Resources[0] {
		m.Resources = append(m.Resources, other)
	}
	if r.IntN(3) == 0 {
		m.Names = []string{OneOf(r.Rand, r.Names...)}
	}
	if r.IntN(3) == 0 {
		m.ObjectSelector = r.selector()
	}
	return m
}

func (r Random) selector() *metav1.LabelSelector {
	if r.IntN(2) == 0 {
		return &metav1.LabelSelector{MatchLabels: r.SomeLabels()}
	}
	requirement := metav1.LabelSelectorRequirement{
		Key: OneOf(r.Rand, slices.Sorted(maps.Keys(r.Labels))...),
		Operator: OneOf(r.Rand, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist,
			metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn),
	}
	if requirement.Operator == metav1.LabelSelectorOpIn || requirement.Operator == metav1.LabelSelectorOpNotIn {
		requirement.Values = r.Labels[requirement.Key][:1]
	}
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{requirement}}
}

// SomeLabels returns labels of an object, or of a selector.
func (r Random) SomeLabels() map[string]string {
	out := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(r.Labels)) {
		if r.IntN(3) > 0 {
			out[key] = OneOf(r.Rand, r.Labels[key]...)
		}
	}
	return out
}
