// Package selftest proves that Ostiary works, from end to end: a policy refuses
// a request while it exists, and no longer.
package selftest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

const (
	// label marks the one object that the policy is for, which is never created.
	label        = v1alpha1.GroupName + "/self-test"
	pollInterval = 200 * time.Millisecond
	// cleanup is how long the policy may take to go after a failure.
	cleanup = 10 * time.Second
)

// Run returns one line that says what has been shown. What it creates is deleted.
func Run(ctx context.Context, c client.Client) (string, error) {
	id := uuid.NewString()
	policy := refusing(id)
	start := time.Now()
	if err := c.Create(ctx, policy); err != nil {
		return "", fmt.Errorf("creating policy %s: %w", policy.Name, err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
		defer cancel()
		_ = c.Delete(ctx, policy) // it may be gone
	}()
	if err := await(ctx, c, id, true); err != nil {
		return "", fmt.Errorf("policy %s does not refuse what it should: %w; %s", policy.Name, err, state(ctx, c, policy.Name))
	}
	refused := time.Since(start)
	start = time.Now()
	if err := c.Delete(ctx, policy); err != nil {
		return "", fmt.Errorf("deleting policy %s: %w", policy.Name, err)
	}
	if err := await(ctx, c, id, false); err != nil {
		return "", fmt.Errorf("policy %s refuses after it has been deleted: %w", policy.Name, err)
	}
	return fmt.Sprintf("Ostiary works: a policy refused a request %s after it was created, and let it pass %s after it was deleted",
		refused.Round(pollInterval/2), time.Since(start).Round(pollInterval/2)), nil
}

// refusing is a policy that refuses one labelled namespace, whatever else is in it.
func refusing(id string) *v1alpha1.WebhookPolicy {
	return &v1alpha1.WebhookPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "ostiary-self-test-" + id[:8], Labels: map[string]string{label: id}},
		Spec: v1alpha1.WebhookPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{
				ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{label: id}},
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"namespaces"}},
				}}},
			},
			Validations: []v1alpha1.Validation{{Expression: "false", Message: message(id)}},
		},
	}
}

func message(id string) string { return "self-test " + id }

// await sends dry-run requests until they are refused by the policy, or no longer.
func await(ctx context.Context, c client.Client, id string, want bool) error {
	for {
		err := c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: "ostiary-self-test-" + id[:8], Labels: map[string]string{label: id},
		}}, client.DryRunAll)
		if ctx.Err() == nil && (err != nil && strings.Contains(err.Error(), message(id))) == want {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the time is up: %w", context.Cause(ctx))
		case <-time.After(pollInterval):
		}
	}
}

// state is what a policy says about itself.
func state(ctx context.Context, c client.Client, name string) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
	defer cancel()
	policy := &v1alpha1.WebhookPolicy{}
	if err := c.Get(ctx, client.ObjectKey{Name: name}, policy); err != nil {
		return "and cannot be read: " + err.Error()
	}
	for _, kind := range []string{v1alpha1.ConditionReachable, v1alpha1.ConditionReady} {
		if found := meta.FindStatusCondition(policy.Status.Conditions, kind); found != nil {
			return fmt.Sprintf("its condition %s is %s (%s): %s", kind, found.Status, found.Reason, found.Message)
		}
	}
	return "no replica of Ostiary has looked at it: see whether its Pods run and one of them leads"
}
