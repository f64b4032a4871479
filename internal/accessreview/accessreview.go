// Package accessreview translates checks of policies, which ask the CEL variable authorizer,
// to SubjectAccessReviews.
package accessreview

import (
	"errors"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Decide returns what a review says, as authorizers do. An evaluation error of the review is
// part of its decision. A review without a decision is a *UnavailableError.
func Decide(status authorizationv1.SubjectAccessReviewStatus) (decision authorizer.Decision, reason string, err error) {
	if status.EvaluationError != "" {
		err = errors.New(status.EvaluationError)
	}
	switch {
	case status.Allowed && status.Denied:
		return authorizer.DecisionNoOpinion, "", &UnavailableError{Err: errors.New("the SubjectAccessReview is both allowed and denied")}
	case status.Denied:
		return authorizer.DecisionDeny, status.Reason, err
	case status.Allowed:
		return authorizer.DecisionAllow, status.Reason, err
	}
	return authorizer.DecisionNoOpinion, status.Reason, err
}

// SpecOf returns the review of a check.
func SpecOf(a authorizer.Attributes) authorizationv1.SubjectAccessReviewSpec {
	var spec authorizationv1.SubjectAccessReviewSpec
	if u := a.GetUser(); u != nil {
		spec.User, spec.UID, spec.Groups, spec.Extra = u.GetName(), u.GetUID(), u.GetGroups(), extraOf(u)
	}
	if !a.IsResourceRequest() {
		spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: a.GetPath(), Verb: a.GetVerb()}
		return spec
	}
	spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
		Namespace: a.GetNamespace(), Verb: a.GetVerb(), Group: a.GetAPIGroup(), Version: a.GetAPIVersion(),
		Resource: a.GetResource(), Subresource: a.GetSubresource(), Name: a.GetName(),
		FieldSelector: fieldSelectorOf(a), LabelSelector: labelSelectorOf(a),
	}
	return spec
}

func extraOf(u user.Info) map[string]authorizationv1.ExtraValue {
	var out map[string]authorizationv1.ExtraValue
	for key, values := range u.GetExtra() {
		if out == nil {
			out = map[string]authorizationv1.ExtraValue{}
		}
		out[key] = values
	}
	return out
}
