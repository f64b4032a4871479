package integration

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// excludesReviews is the first minor version whose API servers call no webhook for reviews.
const excludesReviews = 37

// docs/design/registration.md says for which reviews API servers call webhooks.
func TestWebhooksForReviews(t *testing.T) {
	c := install(t)
	c.prepareExamples(t)
	minor := c.minor(t)
	c.create(t, unreachableForDeveloper())
	a := c.impersonating(t, "", developer)
	await(t).Eventually(func() bool {
		return unreachable(a.Create(t.Context(), configMap("default", good),
			client.DryRunAll))
	}).Should(BeTrue(), "the webhook is called")
	namespace, attributes := metav1.ObjectMeta{Namespace: "default"}, &authorizationv1.ResourceAttributes{
		Namespace: "default",
		Verb:      "get",
		Resource:  "pods",
	}
	subject := authorizationv1.SubjectAccessReviewSpec{User: developer, ResourceAttributes: attributes}
	for _, review := range []client.Object{
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: "a"}},
		&authenticationv1.SelfSubjectReview{},
		&authorizationv1.SubjectAccessReview{Spec: subject},
		&authorizationv1.LocalSubjectAccessReview{ObjectMeta: namespace, Spec: subject},
		&authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: attributes}},
		&authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "default"}},
	} {
		t.Run(fmt.Sprintf("%T", review), func(t *testing.T) {
			err := a.Create(t.Context(), review)
			if called := unreachable(err); called != (minor < excludesReviews) || !called && err != nil {
				t.Errorf("Kubernetes 1.%d: got %v, a webhook is called: %t", minor, err, called)
			}
		})
	}
}

// minor is the minor version of the API server.
func (c *cluster) minor(t *testing.T) int {
	t.Helper()
	info, err := discovery.NewDiscoveryClientForConfigOrDie(c.config).ServerVersion()
	must(t, err)
	minor, err := strconv.Atoi(strings.TrimSuffix(info.Minor, "+"))
	must(t, err)
	return minor
}

// unreachableForDeveloper fails each request of one user for which the API server calls it.
func unreachableForDeveloper() *admissionregistrationv1.ValidatingWebhookConfiguration {
	return &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "unreachable-for-developer"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:         "unreachable.example.com",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:1")},
			Rules: []admissionregistrationv1.RuleWithOperations{
				rule("*", "*/*", admissionregistrationv1.Create).RuleWithOperations,
			},
			MatchConditions: []admissionregistrationv1.MatchCondition{
				{Name: "developer", Expression: "request.userInfo.username == '" + developer + "'"},
			},
			AdmissionReviewVersions: []string{"v1"},
			SideEffects:             ptr.To(admissionregistrationv1.SideEffectClassNone),
		}},
	}
}

// A policy for reviews gets a warning, and its status repeats it.
func TestPolicyForReviewsIsWarnedOf(t *testing.T) {
	c := install(t)
	c.reviewing(t, true)
	const want = "spec.matchConstraints.resourceRules[0].apiGroups[0]: API servers since Kubernetes 1.37 do not call webhooks for the reviews of authentication.k8s.io: there the policy has no effect on them"
	p := newPolicy("for-reviews", "", saying("true"), failing(admissionregistrationv1.Ignore), func(p *v1alpha1.WebhookPolicy) {
		p.Spec.AllowCriticalResources = true
		p.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{
			ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{
				rule("authentication.k8s.io", "tokenreviews", admissionregistrationv1.Create),
			},
		}
	})
	a := c.asker(t)
	must(t, a.Create(t.Context(), p.DeepCopy(), client.DryRunAll))
	if len(a.warnings) != 1 || a.warnings[0] != want {
		t.Errorf("warnings %q, want %q", a.warnings, want)
	}
	c.apply(t, p)
	await(t).Eventually(func() string {
		p, err := c.policy(t.Context(), p.Name)
		if err != nil {
			return err.Error()
		}
		return condition(p, v1alpha1.ConditionAccepted).Message + condition(p, v1alpha1.ConditionReady).Message
	}).Should(ContainSubstring(want))
}
