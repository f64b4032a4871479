package integration

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// mayLookUp lets Ostiary read a kind for lookups, as an operator would.
func (c *cluster) mayLookUp(t *testing.T, group, resource string) *rbacv1.ClusterRole {
	t.Helper()
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "lookups-", Labels: map[string]string{"admission.ostiary.dev/aggregate-to-lookups": "true"}},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{"list", "watch"}}},
	}
	c.create(t, role)
	return role
}

// lookingUp makes a policy deny ConfigMaps whose verdict is a key of a stored object.
func lookingUp(l v1alpha1.Lookup) func(*v1alpha1.WebhookPolicy) {
	return func(p *v1alpha1.WebhookPolicy) {
		l.Name = "found"
		if l.StoredKeys == "" {
			l.StoredKeys = `[stored.metadata.?labels.?verdict.orValue("")]`
		}
		l.RequestKeys = "[object.data.verdict]"
		p.Spec.Lookups = []v1alpha1.Lookup{l}
		p.Spec.Validations = []v1alpha1.Validation{{
			Expression: "lookups.found.size() == 0", MessageExpression: `"the verdict is that of " + lookups.found[0].name`,
		}}
	}
}

func lookupResource(group, version, resource string) v1alpha1.LookupResource {
	return v1alpha1.LookupResource{Group: group, Version: version, Resource: resource}
}

// awaitLookups waits for the condition LookupsReady with a reason and a part of its message.
func (c *cluster) awaitLookups(t *testing.T, policy string, want metav1.ConditionStatus, reason, message string) *v1alpha1.WebhookPolicy {
	t.Helper()
	var p *v1alpha1.WebhookPolicy
	await(t).Eventually(func(g Gomega) {
		var err error
		p, err = c.policy(t.Context(), policy)
		g.Expect(err).NotTo(HaveOccurred())
		got := condition(p, v1alpha1.ConditionLookupsReady)
		g.Expect(got.Status).To(Equal(want), got.Message)
		g.Expect(got.Reason).To(Equal(reason), got.Message)
		g.Expect(got.Message).To(ContainSubstring(message))
	}).Should(Succeed())
	return p
}

// awaitVerdict waits until a request is allowed, or is denied by a policy with a text in the message.
func (c *cluster) awaitVerdict(t *testing.T, namespace, verdict, policy, denied string) {
	t.Helper()
	await(t).Eventually(func(g Gomega) {
		err := c.probe(t.Context(), namespace, verdict)
		if denied == "" {
			g.Expect(err).NotTo(HaveOccurred())
			return
		}
		g.Expect(err).To(MatchError(ContainSubstring(denied)))
		g.Expect(deniedBy(err, policy)).To(BeTrue(), "denied by another policy: %v", err)
	}).Should(Succeed())
}

const maySee = `Ostiary may not read limitranges: create a ClusterRole with the label admission.ostiary.dev/aggregate-to-lookups: "true" ` +
	`and the rule {apiGroups: [""], resources: ["limitranges"], verbs: [list, watch]}`

// TestLookupsFromPermissionToEffect follows a policy with a lookup from the missing permission to the last change
// of the objects, and through the removal of the permission.
func TestLookupsFromPermissionToEffect(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace, elsewhere := c.namespace(t, nil), c.namespace(t, nil)
	stored := labelledLimits(namespace, "first", "one")
	c.create(t, stored)
	c.create(t, labelledLimits(elsewhere, "other", "two"))
	const name = "looks-up"
	c.apply(t, newPolicy(name, namespace, lookingUp(v1alpha1.Lookup{Resource: lookupResource("", "v1", "limitranges")})))
	p := c.awaitLookups(t, name, metav1.ConditionFalse, "LookupsNotReady", "lookup found: "+maySee)
	if got := p.Status.Lookups; len(got) != 1 || got[0].Name != "found" || got[0].Message != maySee {
		t.Errorf("lookups in the status: %+v", got)
	}
	c.awaitCondition(t, name, v1alpha1.ConditionReady, metav1.ConditionFalse)
	c.awaitVerdict(t, namespace, "any", name, maySee)

	role := c.mayLookUp(t, "", "limitranges")
	p = c.awaitLookups(t, name, metav1.ConditionTrue, "Complete", "")
	c.awaitReady(t, name)
	if got := p.Status.Lookups; len(got) != 1 || got[0].Objects == nil || *got[0].Objects < 2 || got[0].Message != "" {
		t.Errorf("lookups in the status: %+v", got)
	}
	c.awaitVerdict(t, namespace, "one", name, "the verdict is that of first")
	c.awaitVerdict(t, namespace, "two", name, "") // of another namespace
	stored.Labels["verdict"] = "three"
	must(t, c.Update(t.Context(), stored))
	c.awaitVerdict(t, namespace, "one", name, "")
	c.awaitVerdict(t, namespace, "three", name, "the verdict is that of first")

	must(t, c.Delete(t.Context(), role))
	c.awaitLookups(t, name, metav1.ConditionFalse, "LookupsNotReady", maySee)
	c.awaitVerdict(t, namespace, "three", name, "the verdict is that of first") // until --lookup-max-age
	must(t, c.Delete(t.Context(), stored))
	c.mayLookUp(t, "", "limitranges")
	c.awaitLookups(t, name, metav1.ConditionTrue, "Complete", "")
	c.awaitVerdict(t, namespace, "three", name, "")
}

const lookupThings = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.lookups.example.com}
spec:
  group: lookups.example.com
  names: {kind: Thing, plural: things}
  scope: Cluster
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
`

const lookupThing = `apiVersion: lookups.example.com/v1
kind: Thing
metadata: {name: thing, labels: {verdict: one}}
`

// The resource of a lookup can be installed after the policy, and removed again: its objects are then gone.
func TestLookupsOfAResourceThatComesAndGoes(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	c.mayLookUp(t, "lookups.example.com", "things")
	const name = "looks-up-things"
	c.apply(t, newPolicy(name, namespace, lookingUp(v1alpha1.Lookup{
		Resource:  lookupResource("lookups.example.com", "v1", "things"),
		Scope:     v1alpha1.LookupScopeCluster,
		KeyErrors: v1alpha1.LookupKeyErrorsSkip,
	})))
	const missing = "the API server has no resource things in lookups.example.com/v1: install it, or change spec.lookups"
	kubectl := func(stdin string, args ...string) {
		t.Helper()
		if _, errOut, err := c.kubectl(t.Context(), stdin, args...); err != nil {
			t.Fatalf("kubectl %s: %v %s", strings.Join(args, " "), err, errOut)
		}
	}
	t.Cleanup(func() { _, _, _ = c.kubectl(t.Context(), lookupThings, "delete", "--ignore-not-found", "-f", "-") })
	for range 2 {
		c.awaitLookups(t, name, metav1.ConditionFalse, "LookupsNotReady", missing)
		c.awaitVerdict(t, namespace, "one", name, missing)
		kubectl(lookupThings, "apply", "-f", "-")
		kubectl("", "wait", "--for=condition=Established", "--timeout=60s", "crd/things.lookups.example.com")
		c.awaitLookups(t, name, metav1.ConditionTrue, "Complete", "")
		c.awaitVerdict(t, namespace, "one", name, "")
		kubectl(lookupThing, "apply", "-f", "-")
		c.awaitVerdict(t, namespace, "one", name, "the verdict is that of thing")
		kubectl(lookupThings, "delete", "-f", "-")
	}
	c.awaitVerdict(t, namespace, "one", name, missing)
}

// A lookup of Secrets reads their metadata alone, so that no policy can compare their values.
func TestLookupsOfSecrets(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	c.mayLookUp(t, "", "secrets")
	c.create(t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "password", Labels: map[string]string{"verdict": "labelled"}},
		StringData: map[string]string{"password": "s3cret"},
	})
	const name = "looks-up-secrets"
	c.enforce(t, newPolicy(name, namespace, lookingUp(v1alpha1.Lookup{
		Resource: lookupResource("", "v1", "secrets"), StoredKeys: `[has(stored.data) ? "values" : "metadata", string(stored.kind), ` +
			`string(stored.metadata.?labels.?verdict.orValue(""))]`,
	})))
	for _, key := range []string{"metadata", "labelled", "Secret"} {
		c.awaitVerdict(t, namespace, key, name, "the verdict is that of password")
	}
	must(t, c.probe(t.Context(), namespace, "values"))
}

// An object whose keys fail makes only requests of its own namespace errors, or is left out and counted.
func TestLookupsOfObjectsWithoutKeys(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace, tenant := c.namespace(t, nil), c.namespace(t, nil)
	c.mayLookUp(t, "", "limitranges")
	c.create(t, labelledLimits(namespace, "good", "one"))
	failing := labelledLimits(tenant, "failing", "none")
	slow := labelledLimits(tenant, "slow", "slow")
	for _, o := range []client.Object{failing, slow} {
		c.create(t, o)
	}
	const keys = `stored.metadata.labels.verdict == "none" ? [stored.metadata.labels.missing] : ` +
		`stored.metadata.labels.verdict == "slow" ? [1,2,3,4,5,6,7,8,9,0].map(a, [1,2,3,4,5,6,7,8,9,0].map(b, [1,2,3,4,5,6,7,8,9,0].map(c, ` +
		`[1,2,3,4,5,6,7,8,9,0].map(d, [1,2,3,4,5,6,7,8,9,0].map(e, a+b+c+d+e))))).map(x, "slow") : [stored.metadata.labels.verdict]`
	both := func(p *v1alpha1.WebhookPolicy) {
		p.Spec.MatchConstraints.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: []string{namespace, tenant}},
		}}
	}
	limits := lookupResource("", "v1", "limitranges")
	c.apply(t, newPolicy("looks-up-failing", namespace, lookingUp(v1alpha1.Lookup{Resource: limits, StoredKeys: keys}), both))
	p := c.awaitLookups(t, "looks-up-failing", metav1.ConditionFalse, "LookupsNotReady",
		"failurePolicy decides requests in the namespaces of 2 objects for which storedKeys or value fail, such as "+
			tenant+"/failing: storedKeys: ")
	if got := p.Status.Lookups[0]; got.LeftOut != 2 || *got.Objects < 1 {
		t.Errorf("status %+v", got)
	}
	c.awaitVerdict(t, namespace, "one", "looks-up-failing", "the verdict is that of good")
	c.awaitVerdict(t, namespace, "two", "looks-up-failing", "")
	c.awaitVerdict(t, tenant, "two", "looks-up-failing", "an object has no keys: "+tenant+"/failing")
	c.remove(t, "looks-up-failing")

	c.enforce(t, newPolicy("looks-up-others", namespace, both, lookingUp(v1alpha1.Lookup{
		Resource: limits, StoredKeys: keys, Scope: v1alpha1.LookupScopeCluster, KeyErrors: v1alpha1.LookupKeyErrorsSkip,
	})))
	c.awaitVerdict(t, tenant, "one", "looks-up-others", "the verdict is that of good")
	c.awaitVerdict(t, tenant, "two", "looks-up-others", "")
	p = c.awaitLookups(t, "looks-up-others", metav1.ConditionTrue, "Complete", "")
	leftOut := "left out because storedKeys or value fail: 2 objects, such as " + tenant + "/failing"
	if got := p.Status.Lookups[0]; got.LeftOut != 2 || !strings.HasPrefix(got.Message, leftOut) {
		t.Errorf("status %+v", got)
	}
}
