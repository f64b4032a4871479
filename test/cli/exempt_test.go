package cli

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/ostiary/ostiary/internal/cli/output"
	"github.com/ostiary/ostiary/test/controlplane"
	"github.com/ostiary/ostiary/test/controlplane/cptest"
)

const labelled = `
apiVersion: admission.ostiary.dev/v1alpha1
kind: WebhookPolicy
metadata: {name: labelled}
spec:
  exceptions: {maxDurationSeconds: 86400}
  podTemplates: {}
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods]}]
  validations:
  - {name: has-team, expression: '"team" in object.metadata.?labels.orValue({})', message: no team}
  - {name: has-owner, expression: '"owner" in object.metadata.?labels.orValue({})', message: no owner}
`

const violating = `
{apiVersion: v1, kind: Namespace, metadata: {name: bank}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {namespace: bank, name: web}
spec: {selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: a, image: a}]}}}
---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {namespace: bank, name: web-1}
spec: {selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: a, image: a}]}}}
---
{apiVersion: v1, kind: Pod, metadata: {namespace: bank, name: web-1-x, labels: {app: web}}, spec: {containers: [{name: a, image: a}]}}
---
{apiVersion: v1, kind: Pod, metadata: {namespace: bank, name: alone, labels: {team: a}}, spec: {containers: [{name: a, image: a}]}}
`

// TestExemptAndBaseline writes exceptions for what violates a policy, so that nothing violates it.
func TestExemptAndBaseline(t *testing.T) {
	cp := cptest.Run(t, controlplane.Options{NoControllerManager: true})
	p := planter{client: dynamic.NewForConfigOrDie(cp.Config()), variables: strings.NewReplacer()}
	for _, kind := range []string{"webhookpolicies", "webhookpolicyexceptions", "clusterwebhookpolicyexceptions"} {
		p.plant(t, p.read(t, "../../config/crd/bases/admission.ostiary.dev_"+kind+".yaml"))
	}
	p.plant(t, p.parse(t, labelled))
	objects := p.parse(t, violating)
	for i, u := range objects {
		if i == 2 || i == 3 { // the ReplicaSet is of the Deployment, and the Pod of the ReplicaSet
			u.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(objects[i-1], objects[i-1].GroupVersionKind())})
		}
		p.plant(t, []*unstructured.Unstructured{u})
		have, err := p.resource(u).Get(t.Context(), u.GetName(), metav1.GetOptions{})
		must(t, err)
		objects[i] = have
	}
	t.Setenv("KUBECONFIG", cp.Kubeconfig())
	testExempt(t, p)
	testBaseline(t, p)
}

func testExempt(t *testing.T, p planter) {
	t.Helper()
	for name, tt := range map[string]struct {
		args       []string
		want       []string // in the output or the errors
		wantStatus int
	}{
		"printed": {
			args: []string{"deploy/web", "-n", "bank", "--policy", "labelled", "--for", "2h", "--reason", "INC-42"},
			want: []string{
				"kind: WebhookPolicyException", "name: labelled-deployment-web", "- deployments", "matchLabels:", "reason: INC-42", "- '*'",
			},
		},
		"longer than the maximum": {
			args: []string{"deploy/web", "-n", "bank", "--policy", "labelled", "--for", "25h", "--reason", "INC-42"},
			want: []string{"the exception lasts longer at spec.expirationTime than the 24h0m0s of the policy"}, wantStatus: output.StatusError,
		},
		"without an end": {
			args: []string{"deploy/web", "-n", "bank", "--policy", "labelled", "--reason", "INC-42"},
			want: []string{"needs an end at spec.expirationTime"}, wantStatus: output.StatusError,
		},
		"unknown validation": {
			args: []string{"deploy/web", "-n", "bank", "--policy", "labelled", "--for", "1h", "--reason", "r", "--validation", "team"},
			want: []string{`has no validation "team"`}, wantStatus: output.StatusError,
		},
		"what the policy never matches": {
			args: []string{"ns/bank", "--policy", "labelled", "--for", "1h", "--reason", "r"},
			want: []string{"match neither the object nor its Pods"}, wantStatus: output.StatusError,
		},
		"no reason": {
			args: []string{"deploy/web", "-n", "bank", "--policy", "labelled", "--for", "1h", "--reason", " "},
			want: []string{"--reason needs a text"}, wantStatus: output.StatusError,
		},
		"applied": {
			args: []string{"pod/alone", "-n", "bank", "--policy", "labelled", "--for", "1h", "--reason", "r", "--apply"},
			want: []string{"created the exception labelled-pod-alone until "},
		},
	} {
		t.Run("exempt, "+name, func(t *testing.T) {
			status, out, errOut := ostiary(t, "", append([]string{"exempt"}, tt.args...)...)
			for _, want := range tt.want {
				if !strings.Contains(out+errOut, want) || status != tt.wantStatus {
					t.Errorf("status %d, want %d; output\n%s%s\nwant %s", status, tt.wantStatus, out, errOut, want)
				}
			}
		})
	}
	alone := p.parse(t, "{apiVersion: admission.ostiary.dev/v1alpha1, kind: WebhookPolicyException, "+
		"metadata: {namespace: bank, name: labelled-pod-alone}}")
	must(t, p.resource(alone[0]).Delete(t.Context(), "labelled-pod-alone", metav1.DeleteOptions{}))
}

func testBaseline(t *testing.T, p planter) {
	t.Helper()
	status, _, errOut := ostiary(t, "", "baseline", "--policy", "labelled", "--for", "23h", "--reason", "r", "--as", "nobody")
	if status != output.StatusError {
		t.Errorf("a user without rights: status %d\n%s", status, errOut)
	}
	status, out, errOut := ostiary(t, "", "baseline", "--policy", "labelled", "--for", "23h", "--reason", "PLAT-7: before the policy")
	if status != output.StatusOK {
		t.Fatalf("status %d\n%s", status, errOut)
	}
	all := p.parse(t, out)
	var got []string
	for _, u := range all {
		validations, _, _ := unstructured.NestedStringSlice(u.Object, "spec", "validations")
		got = append(got, u.GetNamespace()+"/"+u.GetName()+" "+strings.Join(validations, ","))
	}
	slices.Sort(got)
	want := []string{"bank/labelled-deployment-web has-owner,has-team", "bank/labelled-pod-alone has-owner"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("exceptions (-want +got):\n%s\n%s", diff, out)
	}
	p.plant(t, all)
	NewWithT(t).Eventually(func() string {
		_, _, errOut := ostiary(t, "", "baseline", "--policy", "labelled", "--for", "23h", "--reason", "r")
		return errOut
	}).WithTimeout(time.Minute).Should(ContainSubstring("no object violates the policy"))
	testCircularOwners(t, p)
	if status, out, errOut := ostiary(t, "", "violations", "--scan", "-n", "bank"); status != output.StatusOK {
		t.Errorf("violations after the baseline: status %d\n%s%s", status, out, errOut)
	}
}

// testCircularOwners: owner references that form a circle do not keep the command from its end.
func testCircularOwners(t *testing.T, p planter) {
	t.Helper()
	const deployment = "{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: bank, name: NAME}, spec: {selector: {matchLabels: " +
		"{app: ring}}, template: {metadata: {labels: {app: ring}}, spec: {containers: [{name: a, image: a}]}}}}"
	ring := p.parse(t, strings.Replace(deployment, "NAME", "a", 1)+"\n---\n"+strings.Replace(deployment, "NAME", "b", 1))
	p.plant(t, ring)
	for i, u := range ring {
		have, err := p.resource(u).Get(t.Context(), u.GetName(), metav1.GetOptions{})
		must(t, err)
		ring[i] = have
	}
	for i, u := range ring {
		owner := ring[1-i]
		u.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(owner, owner.GroupVersionKind())})
		_, err := p.resource(u).Update(t.Context(), u, metav1.UpdateOptions{})
		must(t, err)
	}
	pod := p.parse(t, "{apiVersion: v1, kind: Pod, metadata: {namespace: bank, name: in-ring}, spec: {containers: [{name: a, image: a}]}}")
	pod[0].SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(ring[0], ring[0].GroupVersionKind())})
	p.plant(t, pod)
	ring = append(ring, pod...)
	status, out, errOut := ostiary(t, "", "baseline", "--policy", "labelled", "--for", "23h", "--reason", "r")
	if status != output.StatusOK || !strings.Contains(out, "name: labelled-deployment-") {
		t.Errorf("status %d\n%s%s", status, out, errOut)
	}
	for _, u := range ring {
		must(t, p.resource(u).Delete(t.Context(), u.GetName(), metav1.DeleteOptions{}))
	}
}
