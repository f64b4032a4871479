package accessreview

import (
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// A selector restricts a review. Requirements that a SubjectAccessReview cannot
// express are omitted. The review then covers more objects, which is allowed to fewer
// users. Like in the API server, an invalid selector is omitted completely.

func fieldSelectorOf(a authorizer.Attributes) *authorizationv1.FieldSelectorAttributes {
	requirements, err := a.GetFieldSelector()
	if err != nil {
		return nil
	}
	var out []metav1.FieldSelectorRequirement
	for _, r := range requirements {
		requirement := metav1.FieldSelectorRequirement{Key: r.Field, Values: []string{r.Value}}
		switch r.Operator {
		case selection.Equals, selection.DoubleEquals, selection.In:
			requirement.Operator = metav1.FieldSelectorOpIn
		case selection.NotEquals, selection.NotIn:
			requirement.Operator = metav1.FieldSelectorOpNotIn
		default:
			continue
		}
		out = append(out, requirement)
	}
	if out == nil {
		return nil
	}
	return &authorizationv1.FieldSelectorAttributes{Requirements: out}
}

func labelSelectorOf(a authorizer.Attributes) *authorizationv1.LabelSelectorAttributes {
	requirements, err := a.GetLabelSelector()
	if err != nil {
		return nil
	}
	var out []metav1.LabelSelectorRequirement
	for _, r := range requirements {
		requirement := metav1.LabelSelectorRequirement{Key: r.Key()}
		if values := r.ValuesUnsorted(); len(values) > 0 {
			requirement.Values = values
		}
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			requirement.Operator = metav1.LabelSelectorOpIn
		case selection.NotEquals, selection.NotIn:
			requirement.Operator = metav1.LabelSelectorOpNotIn
		case selection.Exists:
			requirement.Operator = metav1.LabelSelectorOpExists
		case selection.DoesNotExist:
			requirement.Operator = metav1.LabelSelectorOpDoesNotExist
		default:
			continue
		}
		out = append(out, requirement)
	}
	if out == nil {
		return nil
	}
	return &authorizationv1.LabelSelectorAttributes{Requirements: out}
}
