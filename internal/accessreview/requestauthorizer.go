package accessreview

import (
	"context"
	"errors"

	authorizationv1 "k8s.io/api/authorization/v1"
	admissionauthorizer "k8s.io/apiserver/pkg/admission/plugin/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// UnavailableError is the error of an authorizer that got no decision. The evaluation ends
// with this error, whatever the expression does with the result: as "not allowed" it could
// let a request pass. Errors that are part of a decision are different: expressions read
// them with errored().
type UnavailableError struct{ Err error }

// Error implements error.
func (e *UnavailableError) Error() string {
	return "asking for authorization: " + e.Err.Error()
}

// Unwrap implements errors.Unwrap.
func (e *UnavailableError) Unwrap() error { return e.Err }

// RequestAuthorizer answers the authorization checks of one request. CEL checks without
// the context of the request, so RequestAuthorizer adds it. It keeps decisions for the
// duration of the request. It is not safe for concurrent use.
type RequestAuthorizer struct {
	ctx        context.Context
	authorizer authorizer.UnconditionalAuthorizer
	unanswered error // since the last call of TakeError
}

// NewRequestAuthorizer returns an authorizer for a request to a resource of an API group.
// Nil fails every check.
func NewRequestAuthorizer(
	ctx context.Context,
	asked authorizer.UnconditionalAuthorizer,
	group string,
) *RequestAuthorizer {
	switch {
	case group == authorizationv1.GroupName:
		// Each check would create a review, for which the API server calls the policy again,
		// without an end.
		asked = unavailable("a policy that is called for reviews cannot ask for one")
	case asked == nil:
		asked = unavailable("no authorizer is available")
	}
	return &RequestAuthorizer{ctx: ctx, authorizer: admissionauthorizer.NewCachingAuthorizer(asked)}
}

// unavailable fails every check, for a reason.
func unavailable(reason string) authorizer.AuthorizerFunc {
	return func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return authorizer.DecisionNoOpinion, "", &UnavailableError{errors.New(reason)}
	}
}

// Authorize implements authorizer.UnconditionalAuthorizer.
func (q *RequestAuthorizer) Authorize(
	_ context.Context,
	attributes authorizer.Attributes,
) (authorizer.Decision, string, error) {
	return q.Ask(attributes)
}

// Ask is Authorize with the context of the request.
func (q *RequestAuthorizer) Ask(attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	decision, reason, err := q.authorizer.Authorize(q.ctx, attributes)
	var unanswered *UnavailableError
	if errors.As(err, &unanswered) {
		q.unanswered = err
	}
	return decision, reason, err
}

// Err returns the error of a check without a decision since the last call of TakeError.
func (q *RequestAuthorizer) Err() error { return q.unanswered }

// TakeError returns Err, and forgets it.
func (q *RequestAuthorizer) TakeError() error {
	err := q.unanswered
	q.unanswered = nil
	return err
}
