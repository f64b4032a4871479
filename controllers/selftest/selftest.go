// Package selftest tests an installation from end to end: it creates a policy, and checks
// that the policy denies a request until it is deleted.
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
	// cleanup bounds the deletion of the policy after a failure.
	cleanup = 10 * time.Second
)

// Run returns one line with the result. It deletes the policy that it creates.
func Run(ctx context.Context, c client.Client) (string, error) {
	id := uuid.NewString()
	policy := denyingPolicy(id)
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
		return "", fmt.Errorf("policy %s does not deny a request: %w; %s", policy.Name, err, state(ctx, c, policy.Name))
	}
	untilDenied := time.Since(start)
	start = time.Now()
	if err := c.Delete(ctx, policy); err != nil {
		return "", fmt.Errorf("deleting policy %s: %w", policy.Name, err)
	}
	if err := await(ctx, c, id, false); err != nil {
		return "", fmt.Errorf("policy %s still denies a request after its deletion: %w", policy.Name, err)
	}
	return fmt.Sprintf("Ostiary works: a policy denied a request %s after its creation, and the request passed %s after the deletion of the policy",
		untilDenied.Round(pollInterval/2), time.Since(start).Round(pollInterval/2)), nil
}

// denyingPolicy returns a policy that denies the creation of the namespace with a label.
func denyingPolicy(id string) *v1alpha1.WebhookPolicy {
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

// await sends dry-run requests until the policy denies them (want) or no longer does.
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
			return fmt.Errorf("timed out: %w", context.Cause(ctx))
		case <-time.After(pollInterval):
		}
	}
}

// state describes the condition Ready of a policy, which has the cause of a failure.
func state(ctx context.Context, c client.Client, name string) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
	defer cancel()
	policy := &v1alpha1.WebhookPolicy{}
	if err := c.Get(ctx, client.ObjectKey{Name: name}, policy); err != nil {
		return "reading its status failed: " + err.Error()
	}
	if ready := meta.FindStatusCondition(policy.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
		return fmt.Sprintf("its condition Ready is %s (%s): %s", ready.Status, ready.Reason, ready.Message)
	}
	return "its status is empty: check that the Pods of Ostiary run and that one of them holds the Lease ostiary-leader"
}
