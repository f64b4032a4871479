package integration

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/replicas"
	"github.com/ostiary/ostiary/internal/registration"
	"github.com/ostiary/ostiary/internal/versionskew"
)

// olderReplica writes the Lease of a replica that has loaded everything and does not know a field.
func (c *cluster) olderReplica(t *testing.T, field string) *coordinationv1.Lease {
	t.Helper()
	known := versionskew.KnownFields()
	delete(known, field)
	now := metav1.NowMicro()
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: systemNamespace, Name: replicas.LeaseName("older"),
			Labels: map[string]string{registration.LabelManagedBy: registration.ManagedBy, "app.kubernetes.io/component": "replica"},
			Annotations: map[string]string{
				"admission.ostiary.dev/loaded-policies": "18446744073709551615",
				"admission.ostiary.dev/known-fields":    known.String(),
			},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("older"), LeaseDurationSeconds: ptr.To[int32](300), RenewTime: &now},
	}
	must(t, c.Create(t.Context(), lease))
	t.Cleanup(func() { _ = c.Delete(context.Background(), lease) })
	return lease
}

// awaitSkew waits until the status of a policy says that its fields are not known everywhere.
func (c *cluster) awaitSkew(t *testing.T, policy string, want ...string) {
	t.Helper()
	await(t).Eventually(func() error {
		p, err := c.policy(t.Context(), policy)
		if err != nil {
			return err
		}
		got := condition(p, v1alpha1.ConditionRegistered)
		if got.Status != metav1.ConditionFalse || got.Reason != "WaitingForReplicas" || got.ObservedGeneration != p.Generation {
			return fmt.Errorf("Registered is %+v", got)
		}
		for _, part := range want {
			if !strings.Contains(got.Message, part) {
				return fmt.Errorf("message %q, want %q", got.Message, part)
			}
		}
		return nil
	}).Should(Succeed())
}

// denial returns the message of the denial of a bad request.
func (c *cluster) denial(t *testing.T, namespace string) func() string {
	return func() string {
		if err := c.probe(t.Context(), namespace, bad); err != nil {
			return err.Error()
		}
		return ""
	}
}

// An older replica would drop a new field, and answer as if the policy did not have it. The
// policy stays as it was on every replica until the older one has ended.
func TestPolicyWaitsForOlderReplica(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	c.enforce(t, newPolicy("skewed", namespace))
	c.awaitDenied(t, namespace, "skewed")

	older := c.olderReplica(t, "ratchet")
	c.change(t, "skewed", func(p *v1alpha1.WebhookPolicy) {
		p.Spec.Ratchet = true
		p.Spec.Validations[0].Message = "another word"
	})
	const unknown = "waiting for replica older, which does not know spec.ratchet"
	c.awaitSkew(t, "skewed", unknown, "until then generation 1 stays enforced")
	c.apply(t, newPolicy("skewed-new", namespace, func(p *v1alpha1.WebhookPolicy) { p.Spec.Ratchet = true }))
	c.awaitSkew(t, "skewed-new", unknown)
	if p, err := c.policy(t.Context(), "skewed-new"); err != nil || len(p.Status.Webhooks) > 0 {
		t.Errorf("webhooks %v, %v: want none", p.Status.Webhooks, err)
	}
	c.enforce(t, newPolicy("skewed-beside", namespace)) // without the field, nothing waits
	await(t).Consistently(c.denial(t, namespace)).ShouldNot(ContainSubstring("another word"))

	must(t, c.Delete(t.Context(), older))
	c.awaitReady(t, "skewed")
	c.awaitReady(t, "skewed-new")
	c.remove(t, "skewed-beside")
	c.remove(t, "skewed-new")
	await(t).Eventually(c.denial(t, namespace)).Should(ContainSubstring("another word"))
}

// withDefinition changes the properties of the spec in the CustomResourceDefinition for one test.
func (c *cluster) withDefinition(t *testing.T, edit func(properties map[string]any)) (restore func()) {
	t.Helper()
	definition := &unstructured.Unstructured{}
	definition.SetAPIVersion("apiextensions.k8s.io/v1")
	definition.SetKind("CustomResourceDefinition")
	name := types.NamespacedName{Name: "webhookpolicies." + v1alpha1.GroupName}
	properties := func() map[string]any {
		must(t, c.Get(context.Background(), name, definition))
		versions, _, err := unstructured.NestedSlice(definition.Object, "spec", "versions")
		must(t, err)
		spec, _, err := unstructured.NestedMap(versions[0].(map[string]any), "schema", "openAPIV3Schema", "properties", "spec", "properties")
		must(t, err)
		return spec
	}
	write := func(spec map[string]any) {
		versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
		must(t, unstructured.SetNestedMap(versions[0].(map[string]any), spec, "schema", "openAPIV3Schema", "properties", "spec", "properties"))
		must(t, unstructured.SetNestedSlice(definition.Object, versions, "spec", "versions"))
		must(t, c.Update(context.Background(), definition))
	}
	before := properties()
	changed := maps.Clone(before)
	edit(changed)
	write(changed)
	restore = func() {
		properties() // the latest version of the definition
		write(before)
	}
	t.Cleanup(restore)
	return restore
}

func unstructuredPolicy(name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("WebhookPolicy"))
	u.SetName(name)
	return u
}

// awaitFutureField waits until the manager receives the field spec.future: API servers use a
// definition a moment after it was written, and end the watches that are older a moment later.
func (c *cluster) awaitFutureField(t *testing.T, namespace string) {
	t.Helper()
	c.apply(t, newPolicy("ahead-first", namespace))
	attempt := 0
	await(t).Eventually(func() error {
		attempt++
		patch := fmt.Sprintf(`{"spec":{"future":"attempt %d"}}`, attempt)
		stored := unstructuredPolicy("ahead-first")
		if err := c.Patch(t.Context(), stored, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
			return err
		}
		p, err := c.policy(t.Context(), "ahead-first")
		if err != nil {
			return err
		}
		if got := condition(p, v1alpha1.ConditionRegistered); !strings.Contains(got.Message, "does not know spec.future") {
			return fmt.Errorf("Registered is %+v", got)
		}
		return nil
	}).Should(Succeed())
	c.remove(t, "ahead-first")
}

// An upgrade applies the definition first. A replica of the version before then receives a field
// that it does not know, and must not answer as if the policy did not have it.
func TestDefinitionIsNewerThanReplicas(t *testing.T) {
	c := install(t)
	shared := c.manager(t)
	namespace := c.namespace(t, nil)
	c.enforce(t, newPolicy("ahead", namespace))
	c.awaitDenied(t, namespace, "ahead")
	config := c.carrier(t, "ahead")
	caller := c.caller(t, config)

	c.withDefinition(t, func(properties map[string]any) { properties["future"] = map[string]any{"type": "string"} })
	c.awaitFutureField(t, namespace)
	stored := unstructuredPolicy("ahead")
	patch := `{"spec":{"future":"x","validations":[{"expression":"false","message":"another word"}]}}`
	must(t, c.Patch(t.Context(), stored, client.RawPatch(types.MergePatchType, []byte(patch))))
	c.awaitSkew(t, "ahead", "does not know spec.future", "until then generation 1 stays enforced")
	await(t).Consistently(c.denial(t, namespace)).Should(ContainSubstring("bad is not good"))

	// A replica that starts now does not know the generation before.
	m := c.another(t)
	answer, err := caller.at(t, m.webhook).ask(t.Context(), review(t, "v1", namespace, bad))
	must(t, err)
	if answer.Response.Allowed || !strings.Contains(answer.Response.Result.Message, "does not know the field") {
		t.Errorf("the replica answers %+v", answer.Response)
	}
	now := &configuration{}
	must(t, c.Get(t.Context(), client.ObjectKeyFromObject(config), now))
	if now.Generation != config.Generation {
		t.Errorf("the configuration has changed from generation %d to %d", config.Generation, now.Generation)
	}

	must(t, c.Patch(t.Context(), stored, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"future":null}}`))))
	c.awaitReady(t, "ahead")
	await(t).Eventually(c.denial(t, namespace)).Should(ContainSubstring("another word"))
	if shared.ended() {
		t.Error("the manager has ended")
	}
}

// A definition that is applied after the replicas drops fields that these know. They do not start
// before it is applied, and those of the version before continue.
func TestDefinitionIsOlderThanReplicas(t *testing.T) {
	c := install(t)
	shared := c.manager(t)
	namespace := c.namespace(t, nil)
	c.enforce(t, newPolicy("behind", namespace))
	c.awaitDenied(t, namespace, "behind")

	restore := c.withDefinition(t, func(properties map[string]any) { delete(properties, "breakGlass") })
	await(t).Eventually(func() (string, error) {
		schema, _, err := c.kubectl(t.Context(), "", "get", "--raw", "/openapi/v3/apis/"+v1alpha1.GroupVersion.String())
		return schema, err
	}).ShouldNot(ContainSubstring("breakGlass"))
	m := c.startAnother(t)
	const want = "the API server drops fields from policies that this version of Ostiary knows: spec.breakGlass: apply config/crd of this version first"
	await(t).Eventually(m.ended).Should(BeTrue())
	if log, err := m.output(); err != nil || !strings.Contains(log, want) {
		t.Errorf("%v; the replica logs\n%s\nwant %q", err, log, want)
	}
	text := fmt.Sprintf(manifest, "behind", namespace, "true", "  breakGlass: true\n")
	await(t).Eventually(func() string {
		_, errOut, _ := c.kubectl(t.Context(), text, "apply", "-f", "-")
		return errOut
	}).Should(ContainSubstring(`unknown field "spec.breakGlass"`))
	if got := c.denial(t, namespace)(); !strings.Contains(got, "bad is not good") || shared.ended() {
		t.Errorf("the answer is %q", got)
	}

	restore()
	c.another(t)
	c.change(t, "behind", func(p *v1alpha1.WebhookPolicy) { p.Spec.BreakGlass = true })
	c.awaitReady(t, "behind")
}
