package offline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/accessreview"
)

// Answer is the answer of the authorizer to some checks. An empty field matches
// everything, except that an empty path does not match checks of a path.
type Answer struct {
	// user who is checked.
	User string `json:"user,omitempty"`
	// verb of the check, such as "get".
	Verb string `json:"verb,omitempty"`
	// group is the API group of the checked resource.
	Group string `json:"group,omitempty"`
	// resource that is checked, such as "deployments".
	Resource string `json:"resource,omitempty"`
	// subresource that is checked, such as "scale".
	Subresource string `json:"subresource,omitempty"`
	// namespace of the checked resource.
	Namespace string `json:"namespace,omitempty"`
	// name of the checked object.
	Name string `json:"name,omitempty"`
	// path of a check of a URL, such as "/metrics".
	Path string `json:"path,omitempty"`
	// decision is Allow, Deny or NoOpinion; or Error, if the check fails.
	Decision AnswerDecision `json:"decision"`
	// reason of the decision.
	Reason string `json:"reason,omitempty"`
}

// AnswerDecision is a decision of the authorizer.
type AnswerDecision string

// The decisions. Error is a check that fails.
const (
	Allow     AnswerDecision = "Allow"
	Deny      AnswerDecision = "Deny"
	NoOpinion AnswerDecision = "NoOpinion"
	Error     AnswerDecision = "Error"
)

// Answers is an authorizer with fixed answers; the first that matches counts. A check
// without an answer fails, except the one whether a user may skip a policy: no user may.
type Answers []Answer

// Authorize implements authorizer.UnconditionalAuthorizer.
func (a Answers) Authorize(_ context.Context, asked authorizer.Attributes) (authorizer.Decision, string, error) {
	i := slices.IndexFunc(a, func(answer Answer) bool { return answer.matches(asked) })
	switch {
	case i >= 0:
		return a[i].decide()
	case asked.GetVerb() == "breakglass" && asked.GetAPIGroup() == v1alpha1.GroupName:
		return authorizer.DecisionNoOpinion, "", nil
	}
	return authorizer.DecisionNoOpinion, "", &accessreview.UnavailableError{
		Err: fmt.Errorf("no answer is given for the check %s", describe(asked)),
	}
}

func (a Answer) matches(asked authorizer.Attributes) bool {
	if a.Path != "" || !asked.IsResourceRequest() {
		return a.Path == asked.GetPath() && matches(a.Verb, asked.GetVerb()) && matches(a.User, asked.GetUser().GetName())
	}
	return matches(a.User, asked.GetUser().GetName()) && matches(a.Verb, asked.GetVerb()) && matches(a.Group, asked.GetAPIGroup()) &&
		matches(a.Resource, asked.GetResource()) && matches(a.Subresource, asked.GetSubresource()) &&
		matches(a.Namespace, asked.GetNamespace()) && matches(a.Name, asked.GetName())
}

func matches(want, got string) bool { return want == "" || want == got }

func (a Answer) decide() (authorizer.Decision, string, error) {
	switch a.Decision {
	case Allow:
		return authorizer.DecisionAllow, a.Reason, nil
	case Deny:
		return authorizer.DecisionDeny, a.Reason, nil
	case Error:
		return authorizer.DecisionNoOpinion, "", errors.New(cmp.Or(a.Reason, "the check failed"))
	default:
		return authorizer.DecisionNoOpinion, a.Reason, nil
	}
}

// askedAuthorizer keeps the error of the first check without an answer.
type askedAuthorizer struct {
	authorizer.UnconditionalAuthorizer
	unanswered error
}

// Authorize implements authorizer.UnconditionalAuthorizer.
func (a *askedAuthorizer) Authorize(
	ctx context.Context, asked authorizer.Attributes,
) (authorizer.Decision, string, error) {
	decision, reason, err := a.UnconditionalAuthorizer.Authorize(ctx, asked)
	var unavailable *accessreview.UnavailableError
	if a.unanswered == nil && errors.As(err, &unavailable) {
		a.unanswered = unavailable.Err
	}
	return decision, reason, err
}

// describe writes a check like an Answer.
func describe(asked authorizer.Attributes) string {
	if !asked.IsResourceRequest() {
		return fmt.Sprintf("{user: %q, verb: %q, path: %q}", asked.GetUser().GetName(), asked.GetVerb(), asked.GetPath())
	}
	out := fmt.Sprintf("{user: %q, verb: %q, group: %q, resource: %q", asked.GetUser().GetName(), asked.GetVerb(),
		asked.GetAPIGroup(), asked.GetResource())
	for _, f := range []struct{ name, value string }{
		{"subresource", asked.GetSubresource()}, {"namespace", asked.GetNamespace()}, {"name", asked.GetName()},
	} {
		if f.value != "" {
			out += fmt.Sprintf(", %s: %q", f.name, f.value)
		}
	}
	return out + "}"
}

// sortObjects sorts by namespace and name.
func sortObjects(found []runtime.Object) {
	slices.SortFunc(found, func(a, b runtime.Object) int {
		x, okX := a.(metav1.Object)
		y, okY := b.(metav1.Object)
		if !okX || !okY {
			return 0
		}
		return cmp.Or(cmp.Compare(x.GetNamespace(), y.GetNamespace()), cmp.Compare(x.GetName(), y.GetName()))
	})
}
