package integration

import (
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// protecting denies the deletion of the ConfigMap with the name protected.
func protecting(p *v1alpha1.WebhookPolicy) {
	p.Spec.MatchConstraints.ResourceRules = []admissionregistrationv1.NamedRuleWithOperations{
		rule("", "configmaps", admissionregistrationv1.Delete),
	}
	p.Spec.Validations = []v1alpha1.Validation{{Expression: "oldObject.metadata.name != 'protected'", Message: "it is protected"}}
}

func onlyNamed(name string) func(*v1alpha1.WebhookPolicy) {
	return func(p *v1alpha1.WebhookPolicy) {
		p.Spec.MatchConstraints.ResourceRules[0].ResourceNames = []string{name}
	}
}

// A DELETE of a collection has no name: resourceNames does not match it, a
// comparison of oldObject.metadata.name does.
func TestDeleteOfACollectionHasNoName(t *testing.T) {
	c := install(t)
	c.manager(t)
	for name, tt := range map[string]struct {
		edit           func(*v1alpha1.WebhookPolicy)
		wantCollection bool // denied
	}{
		"resourcenames": {edit: onlyNamed("protected")},
		"comparison":    {edit: func(*v1alpha1.WebhookPolicy) {}, wantCollection: true},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := c.namespace(t, nil)
			object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "protected"}}
			must(t, c.Create(t.Context(), object))
			policy := newPolicy("protects-by-"+name, namespace, protecting, tt.edit)
			c.enforce(t, policy)
			if err := c.Delete(t.Context(), object, client.DryRunAll); !deniedBy(err, policy.Name) {
				t.Errorf("DELETE of the object: %v, want a denial", err)
			}
			err := c.DeleteAllOf(t.Context(), &corev1.ConfigMap{}, client.InNamespace(namespace), client.DryRunAll)
			if deniedBy(err, policy.Name) != tt.wantCollection || err != nil && !tt.wantCollection {
				t.Errorf("DELETE of the collection: %v, want a denial: %t", err, tt.wantCollection)
			}
		})
	}
}

// An object with generateName has no name when mutations run, and a random
// suffix when validations do.
func TestGeneratedNameDoesNotMatchResourceNames(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	const prefix = "named-"
	c.enforce(t, newPolicy("denies-a-name", namespace, saying("false"), onlyNamed("named")))
	for name, tt := range map[string]struct {
		meta       metav1.ObjectMeta
		wantDenied bool
	}{
		"name":         {meta: metav1.ObjectMeta{Namespace: namespace, Name: "named"}, wantDenied: true},
		"generateName": {meta: metav1.ObjectMeta{Namespace: namespace, GenerateName: prefix}},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: tt.meta}, client.DryRunAll)
			if deniedBy(err, "denies-a-name") != tt.wantDenied || err != nil && !tt.wantDenied {
				t.Errorf("got %v, want a denial: %t", err, tt.wantDenied)
			}
		})
	}
	c.change(t, "denies-a-name", saying("!object.metadata.?generateName.orValue('').startsWith('"+prefix+"')"))
	c.change(t, "denies-a-name", func(p *v1alpha1.WebhookPolicy) { p.Spec.MatchConstraints.ResourceRules[0].ResourceNames = nil })
	c.awaitReady(t, "denies-a-name")
	err := c.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: prefix},
	}, client.DryRunAll)
	if !deniedBy(err, "denies-a-name") {
		t.Errorf("got %v, want a denial by the comparison of generateName", err)
	}
}

// The author hears of both when the policy is applied.
func TestResourceNamesAreWarnedOf(t *testing.T) {
	c := install(t)
	c.reviewing(t, true)
	policy := newPolicy("names-what-it-denies", c.namespace(t, nil), onlyNamed("x"))
	policy.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "WebhookPolicy"}
	policy.Spec.MatchConstraints.ResourceRules[0].Operations = []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll}
	text, err := yaml.Marshal(policy)
	must(t, err)
	_, errOut, err := c.kubectl(t.Context(), string(text), "create", "--dry-run=server", "-f", "-")
	must(t, err)
	for _, want := range []string{"a DELETE of a collection has no name", "an object with generateName has no name in mutations"} {
		if !strings.Contains(errOut, "resourceRules[0].resourceNames: "+want) {
			t.Errorf("kubectl said\n%s\nwant a warning with %q", errOut, want)
		}
	}
}
