package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/registration"
)

// There are 50 configurations: each policy is alone in its call groups, since
// it has a namespace of its own, and some have one in either phase.
const (
	places         = 40
	mutatingPlaces = 10
	configurations = places + mutatingPlaces
)

func place(i int) string { return fmt.Sprintf("chaos-%02d", i) }

func mutates(i int) bool { return i < mutatingPlaces }

// policy refuses what is called bad in its namespace, and marks the rest in
// some of them.
func policy(i int) *v1alpha1.WebhookPolicy {
	all := []admissionregistrationv1.OperationType{
		admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete,
	}
	p := &v1alpha1.WebhookPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: place(i)},
		Spec: v1alpha1.WebhookPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: place(i)}},
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: all,
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
				}}},
			},
			// The list has the whole object decoded, as costly as it is.
			Validations: []v1alpha1.Validation{{Expression: `[object].size() == 1 && !request.name.startsWith("bad")`, Message: "bad is not good"}},
		},
	}
	if mutates(i) {
		p.Spec.Mutations = []admissionregistrationv1.Mutation{{
			PatchType: admissionregistrationv1.PatchTypeJSONPatch,
			JSONPatch: &admissionregistrationv1.JSONPatch{
				Expression: `request.operation == "DELETE" ? [] : [JSONPatch{op: "add", path: "/data/marked", value: "yes"}]`,
			},
		}}
	}
	return p
}

// applyPolicies makes the namespaces, what updates and deletions are about, and
// then the policies.
func (w *world) applyPolicies(ctx context.Context) error {
	for i := range places {
		objects := []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: place(i)}}}
		for _, name := range []string{"good-kept", "bad-kept"} {
			objects = append(objects, &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: place(i), Name: name},
				Data:       map[string]string{"a": "b"},
			})
		}
		for _, o := range append(objects, policy(i)) {
			if err := w.admins[0].Create(ctx, o); err != nil {
				return fmt.Errorf("creating %s: %w", o.GetName(), err)
			}
		}
	}
	return nil
}

// configs are the configurations of the policies.
func (w *world) configs(ctx context.Context) ([]registration.Configuration, error) {
	var out []registration.Configuration
	var validate admissionregistrationv1.ValidatingWebhookConfigurationList
	var mutate admissionregistrationv1.MutatingWebhookConfigurationList
	ours := client.MatchingLabels{registration.LabelManagedBy: registration.ManagedBy}
	if err := errors.Join(w.admin().List(ctx, &validate, ours), w.admin().List(ctx, &mutate, ours)); err != nil {
		return nil, err
	}
	for i := range validate.Items {
		out = append(out, &validate.Items[i])
	}
	for i := range mutate.Items {
		out = append(out, &mutate.Items[i])
	}
	out = slices.DeleteFunc(out, func(c registration.Configuration) bool { return c.GetLabels()[registration.LabelPhase] == "" })
	return out, nil
}

// awaitEnforced waits until every policy fails closed, which follows the proof
// that replicas are reached, and both API servers refuse what is bad everywhere.
func (w *world) awaitEnforced(t *testing.T) {
	t.Helper()
	await(t, "50 configurations that fail closed", func() error {
		configs, err := w.configs(t.Context())
		if err == nil && len(configs) < configurations {
			err = fmt.Errorf("there are %d", len(configs))
		}
		for _, c := range configs {
			for _, hook := range registration.Webhooks(c) {
				if *hook.FailurePolicy != admissionregistrationv1.Fail {
					err = fmt.Errorf("configuration %s has yet to fail closed", c.GetName())
				}
			}
		}
		return err
	})
	s := newSender(t, w)
	for i := range places {
		for server := range apiServers {
			await(t, "policy "+place(i), func() error {
				r := request{place: i, server: server, verb: create, name: "bad-probe"}
				if o, text := s.attempt(t.Context(), &r, server); o != denied {
					return fmt.Errorf("%s: %s", o, text)
				}
				return nil
			})
		}
	}
}

// policiesChanged limits every policy to updates for a second. An API server that
// keeps a configuration of that second afterwards allows bad objects.
func policiesChanged(r *run) { r.looseThenStrict(r.concern) }

// policiesRecreated does the same by deleting and creating all policies, so that new
// configurations have the names of deleted ones.
func policiesRecreated(r *run) { r.looseThenStrict(r.recreate) }

func (r *run) looseThenStrict(match func(...admissionregistrationv1.OperationType)) {
	all := policy(0).Spec.MatchConstraints.ResourceRules[0].Operations
	var loose [][2]time.Time // when bad objects may be allowed
	changes := r.size.of(5, 60)
	for range changes {
		began := time.Now()
		match(admissionregistrationv1.Update)
		pause(r.T, time.Second) // API servers compile it
		match(all...)
		r.awaitReady()
		loose = append(loose, [2]time.Time{began, time.Now()})
		pause(r.T, 3*time.Second)
	}
	r.note("%d times less and more, %d allowed meanwhile", changes, r.load.excuse(loose))
}

// recreate replaces all policies by new ones that match operations, after their
// configurations are gone, and waits for the new configurations.
func (r *run) recreate(operations ...admissionregistrationv1.OperationType) {
	r.forPolicies(func(p *v1alpha1.WebhookPolicy) error { return r.admin().Delete(r.Context(), p) })
	await(r.T, "no configurations", func() error {
		configs, err := r.configs(r.Context())
		if err == nil && len(configs) > 0 {
			err = fmt.Errorf("%d remain", len(configs))
		}
		return err
	})
	r.forPolicies(func(p *v1alpha1.WebhookPolicy) error {
		p.Spec.MatchConstraints.ResourceRules[0].Operations = operations
		return r.admin().Create(r.Context(), p)
	})
	r.awaitConfigurations(operations)
}

// forPolicies calls do in parallel with a new value of each policy.
func (r *run) forPolicies(do func(*v1alpha1.WebhookPolicy) error) {
	workqueue.ParallelizeUntil(r.Context(), 8, places, func(i int) {
		if err := do(policy(i)); err != nil {
			r.Error(err)
		}
	})
}

// concern has all policies concern operations, and waits until all configurations do.
func (r *run) concern(operations ...admissionregistrationv1.OperationType) {
	r.forPolicies(func(p *v1alpha1.WebhookPolicy) error {
		match := p.Spec.MatchConstraints.DeepCopy()
		match.ResourceRules[0].Operations = operations
		patch, err := json.Marshal(map[string]any{"spec": map[string]any{"matchConstraints": match}})
		if err != nil {
			return err
		}
		return r.admin().Patch(r.Context(), p, client.RawPatch(types.MergePatchType, patch))
	})
	r.awaitConfigurations(operations)
}

func (r *run) awaitConfigurations(operations []admissionregistrationv1.OperationType) {
	await(r.T, "50 configurations that follow", func() error {
		configs, err := r.configs(r.Context())
		if err == nil && len(configs) < configurations {
			err = fmt.Errorf("there are %d", len(configs))
		}
		for _, c := range configs {
			for _, hook := range registration.Webhooks(c) {
				// No deletion is mutated.
				if got := hook.Rules[0].Operations; slices.Contains(got,
					admissionregistrationv1.Create) != slices.Contains(operations, admissionregistrationv1.Create) {
					err = fmt.Errorf("configuration %s is for %v", c.GetName(), got)
				}
			}
		}
		return err
	})
}

// awaitReady waits until the status of every policy says that its latest
// generation is Ready: from then on no answer may follow an earlier one.
func (r *run) awaitReady() time.Duration {
	return await(r.T, "all policies to be Ready", func() error {
		var list v1alpha1.WebhookPolicyList
		if err := r.admin().List(r.Context(), &list); err != nil {
			return err
		}
		for i := range list.Items {
			p := &list.Items[i]
			c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady)
			if c == nil || c.Status != metav1.ConditionTrue || c.ObservedGeneration != p.Generation {
				return fmt.Errorf("policy %s, generation %d: %+v", p.Name, p.Generation, c)
			}
		}
		return nil
	})
}

// demand sets the validation of all policies.
func (r *run) demand(expression string) {
	patch := fmt.Appendf(nil, `{"spec":{"validations":[{"expression":%q,"message":"bad is not good"}]}}`, expression)
	r.forPolicies(func(p *v1alpha1.WebhookPolicy) error {
		return r.admin().Patch(r.Context(), p, client.RawPatch(types.MergePatchType, patch))
	})
}
