package integration

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/registration"
)

func mutating(p *v1alpha1.WebhookPolicy) {
	p.Spec.Mutations = []admissionregistrationv1.Mutation{{
		PatchType: admissionregistrationv1.PatchTypeJSONPatch,
		JSONPatch: &admissionregistrationv1.JSONPatch{
			Expression: `[JSONPatch{op: "add", path: "/metadata/annotations", value: {"mended": "yes"}}]`,
		},
	}}
	p.Spec.Order = new(int32(40))
}

// TestBothPhasesAreRegistered follows the configurations of a policy that
// mutates and validates from its creation to its end.
func TestBothPhasesAreRegistered(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	c.enforce(t, newPolicy("two-phases", namespace, mutating))
	p := c.awaitReady(t, "two-phases")
	var kinds []string
	var configs []registration.Configuration
	for _, ref := range p.Status.Webhooks {
		kinds = append(kinds, ref.Kind)
		config := registration.NewConfiguration(registration.PhaseValidate)
		if ref.Kind == "MutatingWebhookConfiguration" {
			config = registration.NewConfiguration(registration.PhaseMutate)
		}
		must(t, c.Get(t.Context(), client.ObjectKey{Name: ref.Configuration}, config))
		configs = append(configs, config)
	}
	if diff := cmp.Diff([]string{"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"}, kinds); diff != "" {
		t.Fatalf("kinds of webhooks (-want +got):\n%s", diff)
	}
	for _, config := range configs {
		if got := registration.Webhooks(config); len(got) != 1 || len(registration.Members(config)) == 0 {
			t.Errorf("%s has webhooks %v and members %v", config.GetName(), got, registration.Members(config))
		}
	}

	mutate := configs[0].(*admissionregistrationv1.MutatingWebhookConfiguration)
	edited := mutate.DeepCopy()
	edited.Webhooks = append(edited.Webhooks, *mutate.Webhooks[0].DeepCopy())
	edited.Webhooks[1].Name = "foreign.example.com"
	edited.Webhooks[0].ReinvocationPolicy = new(admissionregistrationv1.IfNeededReinvocationPolicy)
	must(t, c.Update(t.Context(), edited, client.FieldOwner("other")))
	await(t).Eventually(func() error {
		got := &admissionregistrationv1.MutatingWebhookConfiguration{}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(mutate), got); err != nil {
			return err
		}
		if diff := cmp.Diff(mutate.Webhooks, got.Webhooks); diff != "" {
			return fmt.Errorf("not repaired (-want +got):\n%s", diff)
		}
		return nil
	}).Should(Succeed())

	c.remove(t, "two-phases")
	for _, config := range configs {
		await(t).Eventually(func() bool {
			return apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(config),
				registration.NewConfiguration(registration.PhaseOf(config))))
		}).Should(BeTrue(), "%s is still there", config.GetName())
	}
}
