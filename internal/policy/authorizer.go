package policy

import (
	"context"
	"errors"

	admissionv1 "k8s.io/api/admission/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	admissionauthorizer "k8s.io/apiserver/pkg/admission/plugin/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// AuthorizerUnavailableError is the error of an Environment.Authorizer that got no
// decision. The evaluation ends with this error, whatever the expression does with the
// result: as "not allowed" it could let a request pass. Errors that are part of a
// decision are different: expressions read them with errored().
type AuthorizerUnavailableError struct{ Err error }

// Error implements error.
func (e *AuthorizerUnavailableError) Error() string {
	return "asking for authorization: " + e.Err.Error()
}

// Unwrap implements errors.Unwrap.
func (e *AuthorizerUnavailableError) Unwrap() error { return e.Err }

// requestAuthorizer answers the authorization checks of one request. CEL checks without
// the context of the request, so requestAuthorizer adds it. It keeps decisions for the
// duration of the request. It is not safe for concurrent use.
type requestAuthorizer struct {
	ctx        context.Context
	authorizer authorizer.UnconditionalAuthorizer
	unanswered error // since the last call of failed
}

func newRequestAuthorizer(ctx context.Context, raw *admissionv1.AdmissionRequest, host Environment) *requestAuthorizer {
	asked := host.authorizerOf()
	if raw.Resource.Group == authorizationv1.GroupName {
		asked = noAuthorizer{}
	}
	return &requestAuthorizer{ctx: ctx, authorizer: admissionauthorizer.NewCachingAuthorizer(asked)}
}

// noAuthorizer fails every check in a policy for reviews. Each check would create a
// review, for which the API server calls the policy again, without an end.
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

// failed returns the error of a check without a decision since the last call of failed.
func (q *requestAuthorizer) failed() error {
	err := q.unanswered
	q.unanswered = nil
	return err
}
