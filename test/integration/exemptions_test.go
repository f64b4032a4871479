package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// borrowed is what a caller writes into a Namespace to look exempt.
var borrowed = map[string]string{corev1.LabelMetadataName: metav1.NamespaceSystem, "escaping": "yes"}

// labelling has a policy add a label to whatever its rules match.
func labelling(rules ...admissionregistrationv1.NamedRuleWithOperations) func(*v1alpha1.WebhookPolicy) {
	return func(p *v1alpha1.WebhookPolicy) {
		patching(`[JSONPatch{op: "add", path: "/metadata/labels", value: object.metadata.?labels.orValue({}).transformMap(k, v, v)},
			JSONPatch{op: "add", path: "/metadata/labels/marked", value: "` + p.Name + `"}]`)(p)
		p.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{ResourceRules: rules}
	}
}

// Promise: no Namespace escapes a mutation by the label of an exempt namespace,
// whichever way it is written.
func TestNamespacesCannotBorrowAnExemption(t *testing.T) {
	c := install(t)
	c.manager(t)
	existing := c.namespace(t, nil)
	for _, resource := range []string{"namespaces", "*"} {
		t.Run("rules for "+resource, func(t *testing.T) {
			name := map[string]string{"namespaces": "marks-namespaces", "*": "marks-everything"}[resource]
			c.enforce(t, newPolicy(name, "", labelling(rule("", resource, admissionregistrationv1.Create, admissionregistrationv1.Update))))
			await(t).Eventually(func() string { return c.marked(t) }).Should(Equal(name))
			for way, write := range c.waysToWriteNamespaces(existing) {
				t.Run(way, func(t *testing.T) {
					ns, err := write(t.Context())
					if err != nil && !strings.Contains(err.Error(), "name must be provided") {
						t.Fatal(err)
					}
					if err == nil && ns.Labels["marked"] != name {
						t.Errorf("the namespace has labels %v: the policy was not called", ns.Labels)
					}
				})
			}
			c.checkExempt(t, name)
		})
	}
}

// marked is the mark on a namespace that is created.
func (c *cluster) marked(t *testing.T) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "unsuspicious"}}
	must(t, c.Create(t.Context(), ns, client.DryRunAll))
	return ns.Labels["marked"]
}

func (c *cluster) waysToWriteNamespaces(existing string) map[string]func(context.Context) (*corev1.Namespace, error) {
	create := func(name, generateName string, labels map[string]string) func(context.Context) (*corev1.Namespace, error) {
		return func(ctx context.Context) (*corev1.Namespace, error) {
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, GenerateName: generateName, Labels: labels}}
			return ns, c.Create(ctx, ns, client.DryRunAll)
		}
	}
	patch := func(kind types.PatchType, format string) func(context.Context) (*corev1.Namespace, error) {
		return func(ctx context.Context) (*corev1.Namespace, error) {
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: existing}}
			return ns, c.Patch(ctx, ns, client.RawPatch(kind, []byte(fmt.Sprintf(format, corev1.LabelMetadataName))), client.DryRunAll)
		}
	}
	return map[string]func(context.Context) (*corev1.Namespace, error){
		"create by name":                      create("escaping", "", borrowed),
		"create by generateName":              create("", "escaping-", borrowed),
		"create by generateName, no labels":   create("", "escaping-", nil),
		"create by generateName of an exempt": create("", metav1.NamespaceSystem, borrowed),
		"update": func(ctx context.Context) (*corev1.Namespace, error) {
			ns := &corev1.Namespace{}
			if err := c.Get(ctx, client.ObjectKey{Name: existing}, ns); err != nil {
				return nil, err
			}
			ns.Labels = borrowed
			return ns, c.Update(ctx, ns, client.DryRunAll)
		},
		"patch":                        patch(types.MergePatchType, `{"metadata":{"labels":{%q:"kube-system"}}}`),
		"patch that removes the label": patch(types.MergePatchType, `{"metadata":{"labels":{%q:null}}}`),
		"patch that removes the name":  patch(types.MergePatchType, `{"metadata":{"name":null,"labels":{%q:"kube-system"}}}`),
		"apply of one that does not exist": func(ctx context.Context) (*corev1.Namespace, error) {
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "escaping"}}
			body := fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"escaping","labels":{%q:"kube-system"}}}`, corev1.LabelMetadataName)
			return ns, c.Patch(ctx, ns, client.RawPatch(types.ApplyPatchType, []byte(body)), client.DryRunAll, client.FieldOwner("escape"))
		},
	}
}

// checkExempt updates the exempt namespaces, and writes what is in them.
func (c *cluster) checkExempt(t *testing.T, policy string) {
	t.Helper()
	for _, name := range []string{metav1.NamespaceSystem, corev1.NamespaceNodeLease, systemNamespace} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		must(t, c.Patch(t.Context(), ns,
			client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"touched":"yes"}}}`)), client.DryRunAll))
		inside := configMap(name, good)
		must(t, c.Create(t.Context(), inside, client.DryRunAll))
		if ns.Labels["marked"] != "" || inside.Labels["marked"] != "" {
			t.Errorf("policy %s is called for namespace %s (%v) or in it (%v)", policy, name, ns.Labels, inside.Labels)
		}
	}
}

// otherNamespaces are custom resources that are called namespaces. API servers
// match a namespaceSelector with the labels of these objects themselves.
const otherNamespaces = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: namespaces.queues.example.com}
spec:
  group: queues.example.com
  scope: Namespaced
  names: {plural: namespaces, singular: namespace, kind: QueueNamespace, listKind: QueueNamespaceList}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// Promise: custom resources that are called namespaces cannot borrow an exemption
// in either phase, and are exempt in exempt namespaces.
func TestOtherNamespacesCannotBorrowAnExemption(t *testing.T) {
	c := install(t)
	c.manager(t)
	_, errOut, err := c.kubectl(t.Context(), otherNamespaces, "apply", "-f", "-")
	if err != nil {
		t.Fatal(err, errOut)
	}
	t.Cleanup(func() {
		_, _, _ = c.kubectl(context.Background(), otherNamespaces, "delete", "--wait=false", "-f", "-")
	})
	namespace := c.namespace(t, nil)
	create := func(namespace string, labels map[string]string) (*unstructured.Unstructured, error) {
		u := &unstructured.Unstructured{}
		u.SetAPIVersion("queues.example.com/v1")
		u.SetKind("QueueNamespace")
		u.SetNamespace(namespace)
		u.SetName("escaping")
		u.SetLabels(labels)
		return u, c.Create(t.Context(), u, client.DryRunAll)
	}
	rules := rule("queues.example.com", "*", admissionregistrationv1.Create)
	c.enforce(t, newPolicy("marks-others", "", labelling(rules)),
		newPolicy("denies-others", "", saying(`object.metadata.?labels.?marked.orValue("") != "marks-others"`), func(p *v1alpha1.WebhookPolicy) {
			p.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{rules},
			}
		}))
	await(t).Eventually(func() error {
		if _, err := create(namespace, map[string]string{"a": "b"}); !deniedBy(err, "denies-others") {
			return fmt.Errorf("got %w, want a denial", err)
		}
		return nil
	}).Should(Succeed())
	if u, err := create(namespace, borrowed); !deniedBy(err, "denies-others") {
		t.Errorf("an object with labels %v is accepted (%v), want a denial of what the mutation marks", u.GetLabels(), err)
	}
	if u, err := create(metav1.NamespaceSystem, map[string]string{"a": "b"}); err != nil || u.GetLabels()["marked"] != "" {
		t.Errorf("in an exempt namespace: labels %v, %v", u.GetLabels(), err)
	}
}
