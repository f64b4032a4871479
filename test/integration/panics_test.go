package integration

import (
	"encoding/json"
	"errors"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// attempts is more often than a panic was once tolerated.
const attempts = 5

func plugging(name v1alpha1.PluginName, config string) func(*v1alpha1.WebhookPolicy) {
	return func(p *v1alpha1.WebhookPolicy) {
		p.Spec.Validations, p.Spec.MatchConstraints.ResourceRules = nil, nil
		p.Spec.Plugin = &v1alpha1.Plugin{Name: name, Config: &runtime.RawExtension{Raw: []byte(config)}}
	}
}

// reviewOf asks about the creation of an object.
func reviewOf(t *testing.T, kind metav1.GroupVersionKind, resource, namespace, object string) []byte {
	t.Helper()
	body, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: reviewUID, Kind: kind, Resource: metav1.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: resource},
			Namespace: namespace, Name: "probe", Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: []byte(object)},
		},
	})
	must(t, err)
	return body
}

// validatingCaller calls what the configuration of a policy in the validating phase names.
func (c *cluster) validatingCaller(t *testing.T, policy string) *caller {
	t.Helper()
	for _, config := range c.carriers(t, policy) {
		if v, ok := config.(*configuration); ok {
			return c.caller(t, v)
		}
	}
	t.Fatalf("no validating configuration carries %s", policy)
	return nil
}

// Promise: a review without an object changes no answer to another request,
// whatever plugin it reaches.
func TestReviewWithoutObjectChangesNoOtherAnswer(t *testing.T) {
	c := install(t)
	m := c.manager(t)
	pod, fleet := metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, metav1.GroupVersionKind{
		Group:   "example.com",
		Version: "v1",
		Kind:    "Fleet",
	}
	const (
		badPod = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe"}, "spec": {"nodeSelector": {"zone": "b"},
			"tolerations": [{"key": "other", "operator": "Exists"}], "containers": [{"name": "a", "image": "a", "imagePullPolicy": "Never"}],
			"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}}}}`
		badFleet = `{"apiVersion": "example.com/v1", "kind": "Fleet", "metadata": {"name": "probe"}, "spec": {"template": ` +
			`{"spec": {"hostNetwork": true, "containers": [{"name": "a", "image": "a"}]}}}}`
	)
	plugins := map[string]func(*v1alpha1.WebhookPolicy){
		"null-pull":        plugging(v1alpha1.PluginAlwaysPullImages, `{}`),
		"null-selector":    plugging(v1alpha1.PluginPodNodeSelector, `{"clusterDefaultNodeSelector": "zone=a"}`),
		"null-tolerations": plugging(v1alpha1.PluginPodTolerationRestriction, `{"whitelist": [{"key": "known", "operator": "Exists"}]}`),
		"null-topology":    plugging(v1alpha1.PluginLimitPodHardAntiAffinityTopology, `{}`),
		"null-images":      plugging(v1alpha1.PluginImagePolicyWebhook, `{"imagePolicy": {"kubeConfigSecret": {"name": "nowhere"}}}`),
		"null-security": plugging(v1alpha1.PluginPodSecurity,
			`{"defaults": {"warn": "baseline"}, "podTemplates": [{"group": "example.com", "version": "v1", "resource": `+
				`"fleets", "paths": ["spec.template"]}]}`),
	}
	for _, failurePolicy := range []admissionregistrationv1.FailurePolicyType{"Fail", "Ignore"} {
		t.Run(string(failurePolicy), func(t *testing.T) {
			namespace := c.namespace(t, nil)
			for name, edit := range plugins {
				c.apply(t, newPolicy(name, namespace, edit, failing(failurePolicy)))
			}
			for name := range plugins {
				if name != "null-images" { // its backend does not exist
					c.awaitReady(t, name)
				}
			}
			c.awaitCondition(t, "null-images", v1alpha1.ConditionRegistered, "True")
			for _, call := range []struct {
				policy, resource, object string
				kind                     metav1.GroupVersionKind
			}{{"null-pull", "pods", badPod, pod}, {"null-security", "fleets", badFleet, fleet}} {
				port := c.validatingCaller(t, call.policy)
				legitimate := reviewOf(t, call.kind, call.resource, namespace, call.object)
				before, err := port.ask(t.Context(), legitimate)
				must(t, err)
				for range attempts {
					var status *statusError
					if _, err := port.ask(t.Context(), reviewOf(t, call.kind, call.resource, namespace, "null")); err != nil &&
						(!errors.As(err, &status) || status.code != http.StatusBadRequest) {
						t.Errorf("without an object: %v, want an answer or 400", err)
					}
				}
				after, err := port.ask(t.Context(), legitimate)
				must(t, err)
				if diff := cmp.Diff(before.Response, after.Response); diff != "" {
					t.Errorf("%s: the answer to a legitimate review has changed (-before +after):\n%s", call.resource, diff)
				}
			}
			for name := range plugins {
				if n := m.series(t, `ostiary_policy_panics_total{policy="`+name+`"}`); n != 0 {
					t.Errorf("%s panicked %v times", name, n)
				}
				c.remove(t, name)
			}
		})
	}
}

// testsList is a mutation in which the library for JSON patches panics for an
// object whose data.list has null in it, and which labels any other.
const testsList = `[JSONPatch{op: "test", path: "/data/list", value: ["a", "b"]}, JSONPatch{op: "add", path: ` +
	`"/metadata/labels", value: {"seen": "yes"}}]`

func controllerRevision(namespace, data string) *appsv1.ControllerRevision {
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Name: "probe", Namespace: namespace}, Revision: 1, Data: runtime.RawExtension{Raw: []byte(data)},
	}
}

// Promise: an object whose mutation panics is answered by failurePolicy, and
// changes no answer to another request. An event reports it, and the policy stays Ready.
func TestPanicChangesNoOtherAnswer(t *testing.T) {
	c := install(t)
	m := c.manager(t)
	for failurePolicy, wantDenied := range map[admissionregistrationv1.FailurePolicyType]bool{"Fail": true, "Ignore": false} {
		t.Run(string(failurePolicy), func(t *testing.T) {
			namespace := c.namespace(t, nil)
			name := map[bool]string{true: "panics-fail", false: "panics-ignore"}[wantDenied]
			c.enforce(t, newPolicy(name, namespace, patching(testsList), failing(failurePolicy), func(p *v1alpha1.WebhookPolicy) {
				p.Spec.MatchConstraints.ResourceRules = []admissionregistrationv1.NamedRuleWithOperations{
					rule("apps", "controllerrevisions", admissionregistrationv1.Create),
				}
			}))
			mutated := func() (string, error) {
				object := controllerRevision(namespace, `{"list": ["a", "b"]}`)
				err := c.Create(t.Context(), object, client.DryRunAll)
				return object.Labels["seen"], err
			}
			await(t).Eventually(mutated).Should(Equal("yes"))
			a := c.asker(t)
			for range attempts {
				got := a.ask(t, controllerRevision(namespace, `{"list": [null, "b"]}`))
				if (got.Code != 0) != wantDenied {
					t.Errorf("the answer is %+v, want it denied: %t", got, wantDenied)
				}
				if warned := len(got.Warnings) == 1; warned == wantDenied {
					t.Errorf("warnings %q, want one that the policy has not looked at the request: %t", got.Warnings, !wantDenied)
				}
			}
			if got, err := mutated(); got != "yes" || err != nil {
				t.Errorf("after %d panics another object is mutated: %q, %v", attempts, got, err)
			}
			if got := m.series(t, `ostiary_policy_panics_total{policy="`+name+`"}`); got != attempts {
				t.Errorf("%v panics are counted, want %d", got, attempts)
			}
			c.awaitEvent(t, name, "Warning", "Panicked")
			c.awaitReady(t, name)
		})
	}
}
