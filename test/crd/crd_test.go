// Package crd tests the objects of config/ on a real API server, above all the
// CustomResourceDefinition of WebhookPolicy: accepted and rejected policies, and the messages.
package crd

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/test/controlplane"
	"github.com/ostiary/ostiary/test/controlplane/cptest"
)

const installDir = "../../config/default"

func TestCRD(t *testing.T) {
	cp := cptest.Run(t, controlplane.Options{})
	install(t, cp)
	client, err := dynamic.NewForConfig(cp.Config())
	if err != nil {
		t.Fatal(err)
	}
	policies := client.Resource(v1alpha1.GroupVersion.WithResource("webhookpolicies"))
	t.Run("grants what the manager needs and no more", func(t *testing.T) { testPermissions(t, cp) })
	t.Run("accepts the samples", func(t *testing.T) { testSamples(t, cp, client) })
	t.Run("accepts what the documents show", func(t *testing.T) { testDocuments(t, cp, client) })
	t.Run("grants to read params", func(t *testing.T) { testParamsPermissions(t, cp) })
	t.Run("grants to audit objects", func(t *testing.T) { testAuditPermissions(t, cp) })
	t.Run("accepts", func(t *testing.T) { testAccepted(t, policies) })
	t.Run("refuses", func(t *testing.T) { testRefused(t, policies) })
	t.Run("accepts what only internal/validation refuses", func(t *testing.T) { testOnlyValidated(t, policies) })
	t.Run("bounds what status holds", func(t *testing.T) { testStatus(t, policies) })
	t.Run("says that a status is not written yet", func(t *testing.T) { testInitialStatus(t, cp) })
	t.Run("adds nothing to what was written", func(t *testing.T) { testNoDefaults(t, policies) })
	t.Run("refuses empty podTemplates instead of kinds in a server-side apply", func(t *testing.T) { testEmptyPodTemplates(t, policies) })
	t.Run("is explained", func(t *testing.T) { testExplain(t, cp) })
	t.Run("grants what users need and no more", func(t *testing.T) { testUserPermissions(t, cp) })
	t.Run("limits authors of policies", func(t *testing.T) { testAuthors(t, cp) })
	t.Run("accepts and refuses exceptions", func(t *testing.T) { testExceptions(t, cp) })
	t.Run("limits authors of exceptions", func(t *testing.T) { testExceptionGuard(t, cp) })
	t.Run("makes pods that the namespace admits", func(t *testing.T) { testPod(t, cp) })
}

// dryRun creates a policy without storing it, refusing unknown fields as
// kubectl does.
func dryRun(t *testing.T, policies dynamic.ResourceInterface, policy *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return policies.Create(t.Context(), policy, metav1.CreateOptions{
		DryRun:          []string{metav1.DryRunAll},
		FieldValidation: metav1.FieldValidationStrict,
	})
}

// testNoDefaults keeps tools that compare an object with its source quiet.
func testNoDefaults(t *testing.T, policies dynamic.ResourceInterface) {
	want := policyWith(t, "")
	got, err := dryRun(t, policies, want)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.Object["spec"], got.Object["spec"]); diff != "" {
		t.Errorf("the API server changed the spec (-written +stored):\n%s", diff)
	}
}

// testInitialStatus reads new objects while no manager runs. Tools that use kstatus wait while observedGeneration and
// metadata.generation differ, and take an object without a status for ready.
func testInitialStatus(t *testing.T, cp *controlplane.ControlPlane) {
	policy := policyWith(t, "")
	policy.SetName("initial-status")
	for name, tc := range map[string]struct {
		resource dynamic.ResourceInterface
		object   *unstructured.Unstructured
	}{
		"a policy":                    {policiesAs(cp, ""), policy},
		"an exception of a namespace": {exceptionsAs(cp, "", "default"), exceptionWith(t, "default", "")},
		"an exception of the cluster": {exceptionsAs(cp, "", ""), exceptionWith(t, "", "")},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			create(t, tc.resource, tc.object)
			got, err := tc.resource.Get(t.Context(), tc.object.GetName(), metav1.GetOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(got.GetGeneration()).To(Equal(int64(1)))
			g.Expect(got.Object["status"]).To(Equal(map[string]any{"observedGeneration": int64(-1)}))
		})
	}
}

// testEmptyPodTemplates shows why the converters name the kinds of pod templates: in a
// server-side apply, "podTemplates: {}" instead of kinds becomes null, and the API server
// rejects that. A new policy keeps it.
func testEmptyPodTemplates(t *testing.T, policies dynamic.ResourceInterface) {
	apply := func(name, fields string) (any, error) {
		u := policyWith(t, fields)
		u.SetName(name)
		got, err := policies.Apply(t.Context(), name, u, metav1.ApplyOptions{FieldManager: "test"})
		if err != nil {
			return nil, err
		}
		spec, _, err := unstructured.NestedMap(got.Object, "spec")
		return spec["podTemplates"], err
	}
	const empty, kinds = "podTemplates: {}", "podTemplates: {kinds: [{resource: deployments}]}"
	if got, err := apply("empty-templates", empty); err != nil || got == nil {
		t.Errorf("a new policy: got %v and %v, want an empty object", got, err)
	}
	if got, err := apply("template-kinds", kinds); err != nil || got == nil {
		t.Errorf("kinds: got %v and %v, want the kinds", got, err)
	}
	const want = `spec.podTemplates in body must be of type object: "null"`
	if got, err := apply("template-kinds", empty); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("empty instead of kinds: got %v and %v, want %s", got, err, want)
	}
	for _, name := range []string{"empty-templates", "template-kinds"} {
		if err := policies.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
}

// testStatus writes the status of a policy that is stored, a sample, without
// storing it.
func testStatus(t *testing.T, policies dynamic.ResourceInterface) {
	warning := fmt.Sprintf("{fieldRef: %s, warning: %s}", long(253), long(2048))
	for name, tc := range map[string]struct {
		status string
		want   []string
	}{
		"as many warnings as allowed": {status: "expressionWarnings:" + repeat(100, warning)},
		"101 warnings": {"expressionWarnings:" + repeat(101, warning),
			[]string{"status.typeChecking.expressionWarnings: Too many: 101: must have at most 100 items"}},
		"a warning too long": {"expressionWarnings: [{fieldRef: a, warning: " + long(2049) + "}]",
			[]string{"status.typeChecking.expressionWarnings[0].warning: Too long: may not be more than 2048 bytes"}},
		"a path too long": {"expressionWarnings: [{fieldRef: " + long(254) + ", warning: a}]",
			[]string{"status.typeChecking.expressionWarnings[0].fieldRef: Too long: may not be more than 253 bytes"}},
	} {
		t.Run(name, func(t *testing.T) {
			policy, err := policies.Get(t.Context(), "require-team-label", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			policy.Object["status"] = map[string]any{"typeChecking": parse(t, tc.status).Object}
			_, err = policies.UpdateStatus(t.Context(), policy, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
			var got []string
			if err != nil {
				got = causes(t, err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("causes (-want +got):\n%s", diff)
			}
		})
	}
}

const baseSpec = `
matchConstraints:
  resourceRules:
  - {apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}
validations:
- expression: "true"
`

// policyWith is a valid policy whose spec has the given fields, in YAML,
// instead of its own.
func policyWith(t *testing.T, fields string) *unstructured.Unstructured {
	t.Helper()
	spec := map[string]any{}
	for _, document := range []string{baseSpec, fields} {
		for name, value := range parse(t, document).Object {
			spec[name] = value
		}
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(),
		"kind":       "WebhookPolicy",
		"metadata":   map[string]any{"name": "p"},
		"spec":       spec,
	}}
}

func parse(t *testing.T, document string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict([]byte(document), &object.Object); err != nil {
		t.Fatalf("parsing %q: %v", document, err)
	}
	return object
}

// causes lists what the API server says is wrong, one "field: message" each,
// without its remark that rules wait until the structure is right.
func causes(t *testing.T, err error) []string {
	t.Helper()
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		t.Fatalf("got %v, want an error of the API server", err)
	}
	details := status.Status().Details
	if details == nil || len(details.Causes) == 0 {
		return []string{status.Status().Message}
	}
	var out []string
	for _, c := range details.Causes {
		if strings.Contains(c.Message, "some validation rules were not checked") {
			continue
		}
		out = append(out, c.Field+": "+c.Message)
	}
	return out
}
