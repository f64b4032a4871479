package native

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/cli/explain"
	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/migrate/conversion"
	"github.com/ostiary/ostiary/internal/migrate/verify"
)

// sized returns a number of random policies, fewer of them with -short.
func sized(n int) int {
	if testing.Short() {
		return n / 8
	}
	return n
}

// Random native policies convert to WebhookPolicies and back unchanged, as text of YAML.
// The WebhookPolicy has the fields that the native policies were made of.
func TestRoundTrip(t *testing.T) {
	count, policies := map[string]int{}, sized(2000)
	for i := 0; count[kindValidating]+count[kindMutating] < policies; i++ {
		spec := newAuthor(7, i).spec()
		for _, want := range split(i, spec) {
			var written []load.Object
			for _, o := range toNative(t, want) {
				written = append(written, read(t, o)...)
			}
			back := fromNative(t, written)
			count[written[0].Kind]++
			got := back.Policy()
			if diff := cmp.Diff(want.Spec, got.Spec, cmpopts.EquateEmpty(),
				cmpopts.IgnoreFields(v1alpha1.WebhookPolicySpec{}, "AllowCriticalResources")); diff != "" {
				t.Fatalf("policy %d (-generated +converted):\n%s", i, diff)
			}
			again := toNative(t, got)
			if len(again) != len(written) {
				t.Fatalf("policy %d: got %d objects, want %d", i, len(again), len(written))
			}
			for j := range again {
				if diff := cmp.Diff(string(written[j].Raw), string(read(t, again[j])[0].Raw)); diff != "" {
					t.Fatalf("policy %d, object %d (-native +after the way back):\n%s", i, j, diff)
				}
			}
		}
	}
	t.Log(count)
	for _, kind := range []string{kindValidating, kindMutating} {
		if count[kind] < policies/10 {
			t.Errorf("only %d of the policies are %s", count[kind], kind)
		}
	}
}

// split returns the policy for each native kind that a spec needs, with the fields that
// native policies always have.
func split(number int, spec v1alpha1.WebhookPolicySpec) (out []*v1alpha1.WebhookPolicy) {
	name := fmt.Sprintf("p%d", number)
	add := func(change func(*v1alpha1.WebhookPolicySpec)) {
		p := &v1alpha1.WebhookPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"number": fmt.Sprint(number)}},
			Spec:       *spec.DeepCopy(),
		}
		p.Spec.Bindings = p.Spec.EffectiveBindings()
		for i := range p.Spec.Bindings {
			p.Spec.Bindings[i].Name = conversion.Label(fmt.Sprintf("%s.%s", name, p.Spec.Bindings[i].Name))
		}
		p.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "WebhookPolicy"}
		change(&p.Spec)
		out = append(out, p)
	}
	if spec.Mutates() {
		add(func(s *v1alpha1.WebhookPolicySpec) {
			s.Validations, s.AuditAnnotations = nil, nil
			s.ReinvocationPolicy = new(s.EffectiveReinvocationPolicy())
			s.MatchConstraints, _ = mutableResources(s.MatchConstraints)
			for i := range s.Bindings {
				s.Bindings[i].ValidationActions = nil
				s.Bindings[i].MatchResources, _ = mutableResources(s.Bindings[i].MatchResources)
			}
		})
	}
	if spec.Validates() {
		add(func(s *v1alpha1.WebhookPolicySpec) { s.Mutations, s.ReinvocationPolicy = nil, nil })
	}
	return out
}

func toNative(t *testing.T, p *v1alpha1.WebhookPolicy) []*conversion.Output {
	t.Helper()
	objects := read(t, &conversion.Output{Object: p})
	converted, err := Back().Convert(&conversion.Input{Objects: objects})
	if err != nil {
		t.Fatal(err)
	}
	return converted[0].Outputs
}

// fromNative returns the WebhookPolicy of native objects.
func fromNative(t *testing.T, objects []load.Object) *conversion.Output {
	t.Helper()
	converted, err := Source().Convert(&conversion.Input{Objects: objects, All: objects})
	if err != nil {
		t.Fatal(err)
	}
	if len(converted) != 1 || len(converted[0].Outputs) != 1 {
		t.Fatalf("got %d conversions with %v, want one policy", len(converted), converted[0].Rows)
	}
	return converted[0].Outputs[0]
}

func read(t *testing.T, o *conversion.Output) []load.Object {
	t.Helper()
	text, err := o.YAML()
	if err != nil {
		t.Fatal(err)
	}
	objects, err := load.Text(t.Context(), o.Object.GetName(), text)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return objects
}

// What a WebhookPolicy cannot express is kept in an annotation.
func TestLossless(t *testing.T) {
	tests := map[string]string{
		"a dotted name of a binding": "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nmetadata: {name: a.b.c}\nspec: {policyName: p, validationActions: [Deny]}\n",
		"a long name of a binding":   "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nmetadata: {name: " + strings.Repeat("long-", 20) + "name}\nspec: {policyName: p, validationActions: [Deny]}\n",
		"labels and annotations":     "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nmetadata: {name: b, labels: {l: v}, annotations: {a: w}}\nspec: {policyName: p, validationActions: [Warn, Audit]}\n",
		"no annotation is necessary": "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nmetadata: {name: b}\nspec: {policyName: p, validationActions: [Audit]}\n",
		"selectors in a binding":     "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nmetadata: {name: b}\nspec: {policyName: p, validationActions: [Audit], matchResources: {namespaceSelector: {matchLabels: {x: w}}, matchPolicy: Exact}}\n",
		"params of a binding":        "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nmetadata: {name: b}\nspec: {policyName: p, validationActions: [Audit], paramRef: {selector: {matchLabels: {x: w}}, namespace: a, parameterNotFoundAction: Allow}}\n",
	}
	const native = "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: p, annotations: {mine: kept}}\nspec:\n" +
		"  paramKind: {apiVersion: v1, kind: ConfigMap}\n  matchConstraints: {resourceRules: [{apiGroups: [\"\"], apiVersions: [v1], resources: [pods], operations: [CREATE]}]}\n  validations: [{expression: \"true\"}]\n"
	for name, binding := range tests {
		t.Run(name, func(t *testing.T) {
			want, err := load.Text(t.Context(), "native.yaml", []byte(native+"---\n"+binding))
			if err != nil {
				t.Fatal(err)
			}
			converted := fromNative(t, want)
			if _, noted := converted.Policy().Annotations[conversion.AnnotationNative]; noted == (name == "no annotation is necessary" || strings.HasSuffix(name, "of a binding") && !strings.Contains(name, "name") || strings.HasPrefix(name, "selectors")) {
				t.Errorf("the annotation is there: %v", noted)
			}
			got := toNative(t, converted.Policy())
			if len(got) != len(want) {
				t.Fatalf("got %d objects, want %d", len(got), len(want))
			}
			for i := range got {
				var wantTree, gotTree any
				if err := want[i].Read(&wantTree); err != nil {
					t.Fatal(err)
				}
				if err := read(t, got[i])[0].Read(&gotTree); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(wantTree, gotTree); diff != "" {
					t.Errorf("object %d (-want +got):\n%s", i, diff)
				}
			}
		})
	}
}

// The engine of the API server decides about random native policies as Ostiary does about
// what they convert to.
func TestDecideAlike(t *testing.T) {
	objects, err := load.Text(t.Context(), "objects.yaml", []byte(pods))
	if err != nil {
		t.Fatal(err)
	}
	var written []load.Object
	policies := sized(2000)
	for i, n := 0, 0; n < policies; i++ {
		for _, p := range split(i, newAuthor(11, i).spec()) {
			for _, o := range toNative(t, p) {
				written = append(written, read(t, o)...)
			}
			n++
		}
	}
	converted, err := Source().Convert(&conversion.Input{Objects: written, All: written})
	if err != nil {
		t.Fatal(err)
	}
	v := &verify.Verifier{Recorder: func() verify.Recorder { return &explain.Recorder{} }}
	got, err := v.Objects(t.Context(), written, objects, converted)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range got.Different[:min(len(got.Different), 10)] {
		t.Errorf("%s: %s\n%s", d.Assertion, d.Text, strings.Join(d.Why, "\n"))
	}
	t.Logf("%d of %d decisions agree, %d have an effect, %d are skipped", got.Agree, got.Total, got.Effects, len(got.Skipped))
	if got.Agree != got.Total || got.Total < policies || got.Effects < policies/4 ||
		got.Total-got.Effects < policies/4 || len(got.Skipped) > policies/2 {
		t.Errorf("got %d of %d, %d with an effect and %d skipped: want all, many and of both kinds", got.Agree, got.Total,
			got.Effects, len(got.Skipped))
	}
}

const pods = `apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, labels: {team: shop}}
spec: {containers: [{name: app, image: "registry.test/app:1"}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: made, namespace: shop}
data: {mode: plain}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: made, namespace: shop}
spec: {replicas: 3, selector: {}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: app, image: app}]}}}
`
