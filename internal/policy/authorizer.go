package policy

import (
	"context"
	"errors"

	admissionv1 "k8s.io/api/admission/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	admissionauthorizer "k8s.io/apiserver/pkg/admission/plugin/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// AuthorizerUnavailableError is what Host.Authorizer returns where it could not find out
// whether something is allowed. It is an error of the evaluation that asked,
// whatever the expression makes of it: read as "not allowed" it would let a
// request pass wherever a condition is for those who are. An error that is part
// of an answer is not one of these; expressions read it with errored().
type AuthorizerUnavailableError struct{ Err error }

// Error implements error.
func (e *AuthorizerUnavailableError) Error() string {
	return "asking for authorization: " + e.Err.Error()
}

// Unwrap implements errors.Unwrap.
func (e *AuthorizerUnavailableError) Unwrap() error { return e.Err }

// requestAuthorizer are what the expressions of one request ask the authorizer. CEL
// asks without the request's context, which bounds the time of an answer, so
// it is added here. Answers are kept for the length of the request. It is not
// safe for concurrent use.
type requestAuthorizer struct {
	ctx        context.Context
	authorizer authorizer.UnconditionalAuthorizer
	unanswered error // since the last look
}

func newRequestAuthorizer(ctx context.Context, raw *admissionv1.AdmissionRequest, host Environment) *requestAuthorizer {
	asked := host.authorizerOf()
	if raw.Resource.Group == authorizationv1.GroupName {
		asked = noAuthorizer{}
	}
	return &requestAuthorizer{ctx: ctx, authorizer: admissionauthorizer.NewCachingAuthorizer(asked)}
}

// noAuthorizer answers no question about reviews: each would be a review, for which
// the policy is called again, without an end.
type noAuthorizer struct{}

// Authorize implements authorizer.UnconditionalAuthorizer.
func (noAuthorizer) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionNoOpinion, "", &AuthorizerUnavailableError{errors.New("a policy that is called for reviews cannot ask for one")}
}

// Authorize implements authorizer.UnconditionalAuthorizer.
func (q *requestAuthorizer) Authorize(_ context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	decision, reason, err := q.authorizer.Authorize(q.ctx, attributes)
	var unanswered *AuthorizerUnavailableError
	if errors.As(err, &unanswered) {
		q.unanswered = err
	}
	return decision, reason, err
}

// failed is the error of a question since the last look that got no answer.
func (q *requestAuthorizer) failed() error {
	err := q.unanswered
	q.unanswered = nil
	return err
}
