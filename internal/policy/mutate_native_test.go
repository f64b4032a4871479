package policy

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/nativeengine"
)

// The oracle for mutations: the API server's own engine for
// MutatingAdmissionPolicy, run in this process on Go structs. Both sides get
// the same type converters.

// changed is what a client and the storage see of a mutation.
type changed struct {
	Allowed bool
	Code    int32
	Reason  metav1.StatusReason
	Message string
	Object  map[string]any // as the API server would store it; none if denied
}

func (c changed) String() string {
	if c.Allowed {
		data, err := json.Marshal(c.Object)
		return "allowed " + string(data) + fmt.Sprint(err)[:0]
	}
	return fmt.Sprintf("%d %s: %s", c.Code, c.Reason, c.Message)
}

type mutationOracle struct {
	engine *nativeengine.Engine
}

func newMutationOracle(policies []*v1alpha1.WebhookPolicy, w *world) *mutationOracle {
	var all []nativeengine.Mutating
	for _, p := range policies {
		all = append(all, nativeengine.Mutating{Policy: nativeMutation(p), Bindings: nativeMutationBindings(p)})
	}
	engine, _ := w.native().CompileMutating(all...) // it reports the error when it evaluates
	return &mutationOracle{engine}
}

func nativeMutation(p *v1alpha1.WebhookPolicy) *admissionregistrationv1.MutatingAdmissionPolicy {
	p = p.DeepCopy()
	failurePolicy := p.Spec.EffectiveFailurePolicy()
	return &admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: p.ObjectMeta, Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
		ParamKind:          p.Spec.ParamKind,
		MatchConstraints:   p.Spec.MatchConstraints,
		MatchConditions:    p.Spec.MatchConditions,
		Variables:          p.Spec.Variables,
		Mutations:          p.Spec.Mutations,
		FailurePolicy:      &failurePolicy,
		ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
	}}
}

func nativeMutationBindings(p *v1alpha1.WebhookPolicy) []*admissionregistrationv1.MutatingAdmissionPolicyBinding {
	var out []*admissionregistrationv1.MutatingAdmissionPolicyBinding
	for _, b := range nativeBindings(p) {
		out = append(out, &admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: b.ObjectMeta, Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{
			PolicyName: p.Name, ParamRef: b.Spec.ParamRef, MatchResources: b.Spec.MatchResources,
		}})
	}
	return out
}

func (o *mutationOracle) decide(tb testing.TB, in input) changed {
	tb.Helper()
	if in.object != nil {
		in.object = in.object.DeepCopyObject() // it is changed in place
	}
	attrs := in.attributes()
	out, err := o.engine.Evaluate(tb.Context(), attrs)
	if err != nil {
		tb.Fatalf("the oracle failed: %v", err)
	}
	if out.Denial == nil {
		return changed{Allowed: true, Object: content(tb, attrs.GetObject())}
	}
	s := out.Denial
	return changed{Code: s.Code, Reason: s.Reason, Message: strings.Replace(s.Message, "policy '", "WebhookPolicy '", 1)}
}

// content is an object as JSON, by way of its Go type if it has one.
func content(tb testing.TB, object runtime.Object) map[string]any {
	tb.Helper()
	if object == nil {
		return nil
	}
	if u, ok := object.(*unstructured.Unstructured); ok && scheme.Scheme.Recognizes(u.GroupVersionKind()) {
		typed, err := scheme.Scheme.New(u.GroupVersionKind())
		if err != nil {
			tb.Fatal(err)
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, typed, true); err != nil {
			tb.Fatalf("the API server would drop a field: %v", err)
		}
		object = typed
	}
	data, err := json.Marshal(object)
	if err != nil {
		tb.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(data); err != nil {
		tb.Fatal(err)
	}
	return u.Object
}

// inMutation is where our messages name the mutation, and ends what is native's.
var inMutation = regexp.MustCompile(`(?s)denied request: spec\.mutations\[\d+\]: (.*?)(\nspec\.mutations\[\d+\]: .*)?$`)

// mutateOurs is the answer of this package, its patch applied as the API server does.
func mutateOurs(tb testing.TB, group *Group, in input, host Environment) changed {
	tb.Helper()
	raw := in.review(tb)
	before := raw.DeepCopy()
	resp, err := group.Mutate(tb.Context(), raw, host)
	if err != nil {
		tb.Fatal(err)
	}
	if diff := cmp.Diff(before, raw); diff != "" {
		tb.Errorf("the request was changed:\n%s", diff)
	}
	if !resp.Allowed {
		s := resp.Result
		if len(resp.Patch) > 0 || resp.PatchType != nil {
			tb.Errorf("a denial has the patch %s", resp.Patch)
		}
		return changed{Code: s.Code, Reason: s.Reason, Message: inMutation.ReplaceAllString(s.Details.Causes[0].Message, "denied request: $1")}
	}
	if len(raw.Object.Raw) == 0 {
		if len(resp.Patch) > 0 {
			tb.Errorf("patch %s of no object", resp.Patch)
		}
		return changed{Allowed: true}
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(applyMinimal(tb, raw.Object.Raw, resp)); err != nil {
		tb.Fatal(err)
	}
	return changed{Allowed: true, Object: content(tb, u)}
}

// applyMinimal applies an answer's patch and checks that each operation does
// something, and that none replaces a whole of which a part would do.
func applyMinimal(tb testing.TB, document []byte, resp *admissionv1.AdmissionResponse) []byte {
	tb.Helper()
	if resp.Patch == nil {
		if resp.PatchType != nil {
			tb.Errorf("patch type %s without a patch", *resp.PatchType)
		}
		return document
	}
	if resp.PatchType == nil || *resp.PatchType != admissionv1.PatchTypeJSONPatch {
		tb.Errorf("patch type = %v", resp.PatchType)
	}
	operations, err := jsonpatch.DecodePatch(resp.Patch)
	if err != nil {
		tb.Fatal(err)
	}
	if len(operations) == 0 {
		tb.Error("a patch without operations")
	}
	for _, op := range operations {
		next, err := jsonpatch.Patch{op}.Apply(document)
		if err != nil {
			tb.Fatalf("operation %s: %v", resp.Patch, err)
		}
		if reflect.DeepEqual(tree(tb, string(document)), tree(tb, string(next))) {
			tb.Errorf("%s %v changes nothing", op.Kind(), pathOf(op))
		}
		if op.Kind() == "replace" {
			old, _ := valueAt(document, pathOf(op))
			value, _ := op.ValueInterface()
			if kind := reflect.TypeOf(value); kind != nil && kind == reflect.TypeOf(old) && (kind.Kind() == reflect.Map || kind.Kind() == reflect.Slice) {
				tb.Errorf("%s is replaced as a whole", pathOf(op))
			}
		}
		document = next
	}
	return document
}

func pathOf(op jsonpatch.Operation) string {
	path, err := op.Path()
	if err != nil {
		return err.Error()
	}
	return path
}

// valueAt reads a value by its JSON pointer.
func valueAt(document []byte, path string) (any, bool) {
	var value any
	if err := json.Unmarshal(document, &value); err != nil {
		return nil, false
	}
	for _, step := range strings.Split(path, "/")[1:] {
		step = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
		switch v := value.(type) {
		case map[string]any:
			value = v[step]
		case []any:
			var i int
			if _, err := fmt.Sscan(step, &i); err != nil || i >= len(v) {
				return nil, false
			}
			value = v[i]
		default:
			return nil, false
		}
	}
	return value, true
}

func compareMutation(t *testing.T, oracle *mutationOracle, group *Group, in input) changed {
	t.Helper()
	want := oracle.decide(t, in)
	if want.Code >= 500 {
		return serverError(t, want, group, in)
	}
	got := mutateOurs(t, group, in, testWorld.host())
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("our answer differs from the native engine's (-native +ours):\n%s", diff)
	}
	return want
}

// compareMutations is compareMutation for several mutations in a row, between
// which the native engine makes a Go type of what one left before another sees
// it: false, 0, "" and what is empty are gone for most fields. Where that
// matters, our answer is the native one for an object without a Go type.
func compareMutations(t *testing.T, oracle *mutationOracle, group *Group, in input) (native changed, between bool) {
	t.Helper()
	native = oracle.decide(t, in)
	if native.Code >= 500 {
		return serverError(t, native, group, in), false
	}
	ours := mutateOurs(t, group, in, testWorld.host())
	if cmp.Equal(native, ours, cmpopts.EquateEmpty()) {
		return native, false
	}
	untyped := in
	untyped.object = &unstructured.Unstructured{Object: tree(t, string(in.review(t).Object.Raw))}
	got := oracle.decide(t, untyped)
	if got.Code >= 500 {
		return serverError(t, got, group, in), true
	}
	if diff := cmp.Diff(got, ours, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("our answer differs from the native engine's (-native +ours):\n%s\nand for a Go type:\n%s", diff, cmp.Diff(native, ours))
	}
	return native, true
}

// serverError is the difference in what the native engine calls its own
// failure: it refuses the request whatever failurePolicy says. To us it is an
// error of the policy.
func serverError(t *testing.T, native changed, group *Group, in input) changed {
	t.Helper()
	got := mutateOurs(t, group, in, testWorld.host())
	ignores := slices.ContainsFunc(group.policies, func(p *Compiled) bool { return p.failurePolicy == admissionregistrationv1.Ignore })
	if got.Allowed && !ignores {
		t.Errorf("native answer %s, ours %s", native, got)
	}
	return native
}

// mutableInputs are the requests of the tests, and some that matter to
// mutations. One is left out: for an object that was converted for the policy,
// the native engine converts each result to the client's version and takes it
// for the policy's.
func mutableInputs(tb testing.TB) map[string]input {
	tb.Helper()
	inputs := testInputs(tb)
	delete(inputs, "converted deployment")
	inputs["create deployment"] = input{
		operation: admission.Create, kind: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"},
		resource:  schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"},
		namespace: "shop", name: "web", user: alice, object: deployment(tb, "v1"),
	}
	inputs["update scale"] = input{
		operation: admission.Update, kind: schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"},
		resource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, subresource: "scale",
		namespace: "shop", name: "web", user: alice,
		object: typed(tb, "apiVersion: autoscaling/v1\nkind: Scale\nmetadata: {name: web, namespace: shop}\nspec: {replicas: 3}\n"),
		old:    typed(tb, "apiVersion: autoscaling/v1\nkind: Scale\nmetadata: {name: web, namespace: shop}\nspec: {replicas: 1}\n"),
	}
	inputs["create eviction"] = input{
		operation: admission.Create, kind: schema.GroupVersionKind{Group: "policy", Version: "v1", Kind: "Eviction"},
		resource: corev1.SchemeGroupVersion.WithResource("pods"), subresource: "eviction", namespace: "shop", name: "web", user: alice,
		object: typed(tb, "apiVersion: policy/v1\nkind: Eviction\nmetadata: {name: web, namespace: shop}\n"),
	}
	inputs["bare pod"] = func(in input) input {
		in.object = typed(tb, "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop}\nspec: {containers: [{name: app}]}\n")
		return in
	}(inputs["create pod"])
	inputs["unknown kind"] = input{
		operation: admission.Create, kind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Gadget"},
		resource:  schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "gadgets"},
		namespace: "shop", name: "g", user: alice, object: custom(tb, "apiVersion: example.com/v1\nkind: Gadget\nmetadata: {name: g, namespace: shop}\n"),
	}
	return inputs
}
