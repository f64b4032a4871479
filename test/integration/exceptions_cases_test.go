package integration

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/test/exceptioncases"
)

// exceptionCase is a case of the table in a cluster, with a policy and a namespace of its own.
type exceptionCase struct {
	exceptioncases.Case
	policy, namespace string
	exceptions        []v1alpha1.Exception
}

// isPossible reports whether a client can make the request, and an API server the exceptions, which it
// creates now.
func isPossible(c *exceptioncases.Case) bool {
	limit, _ := c.Changes["exceptions"].(map[string]any)
	for _, x := range c.Exceptions() {
		if limit != nil && x.GetSpec().ExpirationTime != nil && !x.GetCreationTimestamp().Time.Equal(exceptioncases.Noon()) {
			return false
		}
	}
	return !c.OnePhase && c.RequestName == "" && c.Others == 0 && c.Kind != "Namespace" && c.Kind != "ClusterRole"
}

// TestExceptionCasesInCluster shows that a cluster decides the cases of the table as internal/policy does.
func TestExceptionCasesInCluster(t *testing.T) {
	c := install(t)
	c.manager(t)
	c.mayRead(t, "", "configmaps")
	table, err := exceptioncases.All()
	must(t, err)
	other := c.namespace(t, nil)
	var cases []*exceptionCase
	for i := range table {
		if isPossible(&table[i]) {
			x := &exceptionCase{Case: table[i], policy: fmt.Sprintf("exception-case-%03d", i), namespace: c.namespace(t, nil)}
			x.store(t, c)
			cases = append(cases, x)
		}
	}
	if len(cases) < 100 {
		t.Fatalf("%d cases are possible, want at least 100", len(cases))
	}
	for _, x := range cases {
		c.apply(t, x.newPolicy(t))
		x.createExceptions(t, c, other)
	}
	for _, x := range cases {
		c.awaitReady(t, x.policy)
		x.awaitStatus(t, c)
	}
	for _, x := range cases {
		t.Run(x.Name, func(t *testing.T) { x.check(t, c) })
	}
}

// inNamespace replaces the namespace of the table.
func (x *exceptionCase) inNamespace(raw []byte) []byte {
	return []byte(strings.NewReplacer(`"shop"`, `"`+x.namespace+`"`, `'shop'`, `'`+x.namespace+`'`).Replace(string(raw)))
}

func (x *exceptionCase) object(t *testing.T, raw []byte) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	must(t, json.Unmarshal(x.inNamespace(raw), &u.Object))
	return u
}

// store creates what is there before the policy.
func (x *exceptionCase) store(t *testing.T, c *cluster) {
	t.Helper()
	request, err := x.Request()
	must(t, err)
	if len(request.OldObject.Raw) > 0 {
		must(t, c.Create(t.Context(), x.object(t, request.OldObject.Raw)))
	}
	for _, data := range x.Params {
		metadata := metav1.ObjectMeta{Namespace: x.namespace, Name: data["name"], Labels: map[string]string{"of": "case"}}
		must(t, c.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metadata, Data: data}))
	}
}

// newPolicy returns the policy of the case, for its namespace alone.
func (x *exceptionCase) newPolicy(t *testing.T) *v1alpha1.WebhookPolicy {
	t.Helper()
	p, err := x.Policy()
	must(t, err)
	raw, err := json.Marshal(p)
	must(t, err)
	out := &v1alpha1.WebhookPolicy{}
	must(t, json.Unmarshal(x.inNamespace(raw), out))
	out.Name = x.policy
	here := admissionregistrationv1.MatchCondition{Name: "here", Expression: "request.namespace == '" + x.namespace + "'"}
	out.Spec.MatchConditions = append([]admissionregistrationv1.MatchCondition{here}, out.Spec.MatchConditions...)
	if m := out.Spec.MatchConstraints; m != nil {
		isClusterScoped := func(r admissionregistrationv1.NamedRuleWithOperations) bool {
			return slices.Contains(r.Resources, "clusterroles")
		}
		m.ResourceRules = slices.DeleteFunc(m.ResourceRules, isClusterScoped)
		if out.Spec.ParamKind != nil { // missing params deny before match conditions are evaluated
			m.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: x.namespace}}
		}
		for i := range m.ResourceRules {
			rule := &m.ResourceRules[i]
			if len(out.Spec.Validations) == 0 { // mutations do not apply to deletions
				rule.Operations = slices.DeleteFunc(rule.Operations, func(o admissionregistrationv1.OperationType) bool { return o == "DELETE" })
			}
		}
	}
	return out
}

// createExceptions creates the exceptions of the case, the oldest first, each as long before its end.
func (x *exceptionCase) createExceptions(t *testing.T, c *cluster, other string) {
	t.Helper()
	all := x.Exceptions()
	slices.SortStableFunc(all, func(a, b v1alpha1.Exception) int {
		return a.GetCreationTimestamp().Time.Compare(b.GetCreationTimestamp().Time)
	})
	for _, e := range all {
		spec := e.GetSpec()
		switch left := spec.ExpirationTime; {
		case left == nil:
		case !left.After(exceptioncases.Noon()):
			left.Time = time.Now().Add(-time.Second)
		default:
			left.Time = time.Now().Add(max(left.Sub(exceptioncases.Noon()), time.Hour))
		}
		spec.PolicyName = map[string]string{"p": x.policy}[spec.PolicyName]
		spec.PolicyName = cmp.Or(spec.PolicyName, "no-such-policy")
		e.SetCreationTimestamp(metav1.Time{})
		switch e.GetNamespace() {
		case exceptioncases.Namespace:
			e.SetNamespace(x.namespace)
		case "":
			e.SetName(x.policy)
		default:
			e.SetNamespace(other)
			e.SetName(x.policy)
		}
		if x.Invalid && apierrors.IsInvalid(c.Create(t.Context(), e.DeepCopyObject().(client.Object), client.DryRunAll)) {
			continue
		}
		c.create(t, e)
		x.exceptions = append(x.exceptions, e)
	}
}

// awaitStatus waits until the exceptions are loaded, or known to have no effect.
func (x *exceptionCase) awaitStatus(t *testing.T, c *cluster) {
	t.Helper()
	for _, e := range x.exceptions {
		await(t).Eventually(func() error {
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(e), e); err != nil {
				return err
			}
			active := meta.FindStatusCondition(e.GetStatus().Conditions, v1alpha1.ConditionActive)
			if active == nil || active.Status == metav1.ConditionUnknown || active.Reason == "PolicyNotFound" && e.GetSpec().PolicyName == x.policy {
				return fmt.Errorf("the exception %s of %s has no status yet: %+v", e.GetName(), x.Name, active)
			}
			return nil
		}).Should(Succeed())
	}
}

// send sends the request of the case as a dry run, and returns the object as it would be stored.
func (x *exceptionCase) send(ctx context.Context, t *testing.T, a *asker) (*unstructured.Unstructured, error) {
	t.Helper()
	request, err := x.Request()
	must(t, err)
	if request.Operation == "DELETE" {
		object := x.object(t, request.OldObject.Raw)
		if x.Nameless {
			return object, a.DeleteAllOf(ctx, object, client.InNamespace(x.namespace), client.DryRunAll)
		}
		return object, a.Delete(ctx, object, client.DryRunAll)
	}
	object := x.object(t, request.Object.Raw)
	if request.Operation == "CREATE" {
		return object, a.Create(ctx, object, client.DryRunAll)
	}
	stored := &unstructured.Unstructured{Object: map[string]any{"apiVersion": object.GetAPIVersion(), "kind": object.GetKind()}}
	must(t, a.Get(ctx, client.ObjectKeyFromObject(object), stored))
	if x.Subresource != "" {
		return object, a.SubResource(x.Subresource).Update(ctx, stored, client.DryRunAll)
	}
	stored.SetLabels(object.GetLabels())
	if x.ChangedTemplate {
		stored.Object["spec"].(map[string]any)["template"] = object.Object["spec"].(map[string]any)["template"]
	}
	return stored, a.Update(ctx, stored, client.DryRunAll)
}

func (x *exceptionCase) check(t *testing.T, c *cluster) {
	t.Helper()
	a := c.asker(t)
	denies := x.Want == "deny" || x.Denies
	var got *unstructured.Unstructured
	var err error
	await(t).Eventually(func() bool { // a replica can load a policy or a param after its status is written
		a.warnings = nil
		got, err = x.send(t.Context(), t, a)
		return deniedBy(err, x.policy) == denies && (err == nil || denies)
	}).Should(BeTrue(), func() string { return fmt.Sprintf("denied: want %t, got %v", denies, err) })
	for _, name := range x.Denied {
		if !strings.Contains(err.Error(), "denied request: "+name) || strings.Contains(err.Error(), "denied request: has-team") {
			t.Errorf("the message is %v, want one about %s alone", err, name)
		}
	}
	if denies {
		return
	}
	wantWarning := map[string]string{
		"warn": "Validation failed", "breakglass": "skipped", "ratchet": "allowed request, because the stored object fails it too",
	}[x.Want]
	if x.DeniesPods {
		wantWarning = "will deny the Pods"
	}
	text := strings.Join(a.warnings, "; ")
	if isWarned := strings.Contains(text, "WebhookPolicy"); isWarned != (wantWarning != "") || !strings.Contains(text, wantWarning) {
		t.Errorf("the warnings are %q, want %q", text, wantWarning)
	}
	if mutated := isMutated(got); x.Mutating && mutated != (x.Want == "mutate") {
		t.Errorf("mutated: %t, want %s: %v", mutated, x.Want, got.Object)
	}
}

// isMutated reports whether a mutation of the table changed an object.
func isMutated(u *unstructured.Unstructured) bool {
	template, _, _ := unstructured.NestedString(u.Object, "spec", "template", "metadata", "labels", "team")
	containers, _, _ := unstructured.NestedSlice(u.Object, "spec", "containers")
	return u.GetLabels()["team"] != "" || template != "" ||
		len(containers) == 1 && containers[0].(map[string]any)["imagePullPolicy"] == string(corev1.PullAlways)
}
