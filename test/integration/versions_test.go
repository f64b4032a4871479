package integration

import (
	"context"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// A stored policy follows the version of the cluster: its answers, and the warnings in its
// condition. An upgrade is also a restart of Ostiary, which finds the status that it wrote
// for the earlier version.
func TestStoredPolicyFollowsTheVersion(t *testing.T) {
	const (
		tolerated = "orValue() of a value that is not optional is this value up to Kubernetes 1.36, and an error from 1.37 on: use object.data.?verdict.orValue(...)"
		missing   = "Kubernetes 1.36 and before have no function includes(), and 1.37 has: use the operator in"
	)
	c := install(t)
	g := c.gate(t)
	namespace := c.namespace(t, nil)
	// expect waits for the effect and the condition in a version.
	expect := func(name string, wantAllowed, wantMissing bool) {
		t.Helper()
		await(t).Eventually(func() bool {
			return deniedBy(c.probe(t.Context(), namespace, good), name)
		}).Should(Equal(!wantAllowed), "a good request is denied")
		await(t).Eventually(func() string {
			p := c.awaitCondition(t, name, v1alpha1.ConditionAccepted, metav1.ConditionTrue)
			return condition(p, v1alpha1.ConditionAccepted).Message
		}).Should(And(ContainSubstring(tolerated),
			WithTransform(func(s string) bool { return strings.Contains(s, missing) }, Equal(wantMissing))))
	}
	g.claim("37")
	c.behind(t, g)
	c.apply(t, newPolicy("follows", namespace, func(p *v1alpha1.WebhookPolicy) {
		p.Spec.Validations = []v1alpha1.Validation{{Expression: `object.data.verdict.orValue("x") == "good" && [1].includes(1)`}}
	}))
	c.awaitReady(t, "follows")
	expect("follows", false, false)
	g.claim("35") // another API server, of the earlier version
	expect("follows", true, true)
	g.claim("37")
	c.behind(t, g)
	expect("follows", false, false)
	g.claim("36")
	m := c.behind(t, g)
	expect("follows", true, true)
	m.knewBefore(t, "1.36")
}

// knewBefore checks that a manager knew the version before it started to load policies.
func (m *process) knewBefore(t *testing.T, version string) {
	t.Helper()
	log, err := m.output()
	must(t, err)
	before, _, started := strings.Cut(log, "Starting Controller")
	if _, line, known := strings.Cut(before,
		"answering like the native engine of this version of Kubernetes"); !started || !known ||
		!strings.Contains(line, version) {
		t.Errorf("the manager did not know version %s before its controllers started:\n%s", version, before)
	}
}

// deletesUnreadable is the first minor version whose API servers delete objects that they
// cannot read, if the request asks for it.
const deletesUnreadable = 37

// docs/design/registration.md says that such a deletion calls no webhook.
func TestUnreadableObjectIsDeletedWithoutPolicies(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	c.apply(t, newPolicy("keeps", namespace, saying("false"), func(p *v1alpha1.WebhookPolicy) {
		p.Spec.MatchConstraints.ResourceRules = []admissionregistrationv1.NamedRuleWithOperations{
			rule("", "podtemplates", admissionregistrationv1.Delete),
		}
	}))
	c.awaitReady(t, "keeps")
	template := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "unreadable"}}
	template.Template.Spec.Containers = []corev1.Container{{Name: "a", Image: "registry.test/a"}}
	must(t, c.Create(t.Context(), template))
	unsafe := &client.DeleteOptions{Raw: &metav1.DeleteOptions{IgnoreStoreReadErrorWithClusterBreakingPotential: new(true)}}
	await(t).Eventually(func() bool { return deniedBy(c.Delete(t.Context(), template, client.DryRunAll), "keeps") }).Should(BeTrue())

	key := []byte("/registry/podtemplates/" + namespace + "/unreadable")
	must(t, plane.AskEtcd(t.Context(), 0, "/v3/kv/put", map[string][]byte{"key": key, "value": []byte("unreadable")}, nil))
	t.Cleanup(func() {
		must(t, plane.AskEtcd(context.Background(), 0, "/v3/kv/deleterange", map[string][]byte{"key": key}, nil))
	})
	err := c.Delete(t.Context(), template, unsafe)
	if minor := c.minor(t); (err == nil) != (minor >= deletesUnreadable) ||
		err != nil && (deniedBy(err, "keeps") || !apierrors.IsInternalError(err)) {
		t.Errorf("Kubernetes 1.%d: got %v", minor, err)
	}
}

// labelsBindings is the first minor version whose API servers copy the topology labels of a
// node to the Binding of a Pod, and mutatesNatively the first with native mutations.
const labelsBindings, mutatesNatively = 35, 36

// docs/operations/kubernetes-versions.md says what plugins change before webhooks are called.
func TestPoliciesReadWhatPluginsChanged(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	minor := c.minor(t)
	t.Run("the labels of a node", func(t *testing.T) {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "labelled", Labels: map[string]string{corev1.LabelTopologyZone: "a"}}}
		c.create(t, node)
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "unbound"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "registry.test/a"}}},
		}
		await(t).Eventually(func() error { return c.Create(t.Context(), pod) }).Should(Succeed(),
			"the ServiceAccount of the namespace comes a moment later")
		c.enforce(t, newPolicy("zones", namespace,
			showing(`"zone " + object.metadata.?labels[?"topology.kubernetes.io/zone"].orValue("none")`),
			func(p *v1alpha1.WebhookPolicy) {
				p.Spec.MatchConstraints.ResourceRules = []admissionregistrationv1.NamedRuleWithOperations{
					rule("", "pods/binding", admissionregistrationv1.Create),
				}
			}))
		want := "denied request: zone none"
		if minor >= labelsBindings {
			want = "denied request: zone a"
		}
		await(t).Eventually(func() error {
			binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: node.Name}}
			return c.SubResource("binding").Create(t.Context(), pod, binding, client.DryRunAll)
		}).Should(MatchError(ContainSubstring(want)))
	})
	t.Run("native mutations", func(t *testing.T) {
		if minor < mutatesNatively {
			t.Skip("there are none by default")
		}
		match := newPolicy("", namespace).Spec.MatchConstraints
		c.create(t, &admissionregistrationv1.MutatingAdmissionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: "native-first"},
			Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
				MatchConstraints: match, ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
				Mutations: []admissionregistrationv1.Mutation{{
					PatchType: admissionregistrationv1.PatchTypeApplyConfiguration,
					ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{
						Expression: `Object{metadata: Object.metadata{labels: {"native": "yes"}}}`,
					},
				}},
			},
		})
		c.create(t, &admissionregistrationv1.MutatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "native-first"},
			Spec:       admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: "native-first"},
		})
		c.enforce(t, newPolicy("reads-native", namespace, showing(`"native " + object.metadata.?labels.?native.orValue("no")`)))
		await(t).Eventually(func() error {
			return c.probe(t.Context(), namespace,
				good)
		}).Should(MatchError(ContainSubstring("denied request: native yes")))
	})
}

// showing denies every request with the value of an expression.
func showing(expression string) func(*v1alpha1.WebhookPolicy) {
	return func(p *v1alpha1.WebhookPolicy) {
		p.Spec.Validations = []v1alpha1.Validation{{Expression: "false", MessageExpression: expression}}
	}
}
