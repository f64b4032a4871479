package policy

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/response"
)

// failure is a validation that fails for one binding and param; its message names both the
// validation and the param.
type failure struct {
	Binding, Message string
	Index            int
}

// failuresOf reads the audit annotation of failures, which the native engine writes too.
func failuresOf(tb testing.TB, annotations map[string]string) (out []failure) {
	tb.Helper()
	var values []validating.ValidationFailureValue
	if text, ok := annotations[response.FailureKey]; ok {
		if err := json.Unmarshal([]byte(text), &values); err != nil {
			tb.Fatal(err)
		}
	}
	for _, v := range values {
		out = append(out, failure{v.Binding, v.Message, v.ExpressionIndex})
	}
	return out
}

// ratcheting returns a policy of which any validation can ratchet. It denies and audits, so
// that the audit annotation has every failure. A false validation has the message
// "validation i", and an error has another one.
func (a author) ratcheting(tb testing.TB) *v1alpha1.WebhookPolicy {
	tb.Helper()
	labels := []string{`object.metadata.labels.team == "shop"`, `object.metadata.?labels.team.orValue("") != "shop"`, `has(object.metadata.labels)`, "object != oldObject", `oldObject.metadata.labels.team == "old"`}
	for {
		p := a.policy("p")
		if a.IntN(2) == 0 {
			m := a.matchResources()
			p.Spec.MatchConstraints.ObjectSelector, p.Spec.MatchConstraints.NamespaceSelector = m.ObjectSelector, m.NamespaceSelector
		}
		if a.IntN(3) == 0 {
			p.Spec.MatchConditions = append(p.Spec.MatchConditions, admissionregistrationv1.MatchCondition{Name: "labels", Expression: pick(a, labels...)})
		}
		p.Spec.AuditAnnotations = nil
		for i := range p.Spec.Validations {
			v := &p.Spec.Validations[i]
			v.Message, v.MessageExpression, v.Ratchet = fmt.Sprintf("validation %d", i), "", new(a.IntN(4) > 0)
			if a.IntN(2) == 0 {
				v.Expression = pick(a, "false", labels[a.IntN(len(labels))], "object == null")
			}
			if p.Spec.ParamKind != nil {
				v.MessageExpression = fmt.Sprintf(`"validation %d" + (params == null ? "" : " of " + string(params.metadata.?namespace.orValue("")) + "/" + string(params.metadata.name))`, i)
			}
		}
		for i := range p.Spec.Bindings {
			p.Spec.Bindings[i].ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny, admissionregistrationv1.Audit}
		}
		if _, errs := sharedCompiler.Compile(p); len(errs) == 0 {
			return p
		}
	}
}

// updateInputs are updates of objects with labels that selectors and conditions can tell
// apart.
func updateInputs(tb testing.TB) map[string]input {
	tb.Helper()
	out := map[string]input{}
	labelled := func(labels string) runtime.Object {
		return typed(tb, strings.Replace(podYAML, "labels: {team: shop, app.kubernetes.io/name: web}", labels, 1))
	}
	pods := map[string]runtime.Object{"shop": labelled("labels: {team: shop}"), "old": labelled("labels: {team: old}"), "none": labelled("")}
	for before, old := range pods {
		for after, object := range pods {
			in := podInput(tb, admission.Update)
			in.object, in.old = object, old
			out["pod from "+before+" to "+after] = in
		}
	}
	namespace := func(labels string) runtime.Object {
		return typed(tb, "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {"+labels+"}}\n")
	}
	out["namespace"] = input{
		operation: admission.Update, kind: corev1.SchemeGroupVersion.WithKind("Namespace"), resource: corev1.SchemeGroupVersion.WithResource("namespaces"),
		namespace: "shop", name: "shop", user: alice, object: namespace("tier: prod, team: shop"), old: namespace("none: x"),
	}
	all := testInputs(tb)
	out["status"], out["converted"] = all["update status"], all["converted deployment"]
	return out
}

// TestRatchetOnlyIfKubernetesDeniesTheStoredObject compares ratchet with the native engine:
// a validation that is false lets an UPDATE pass if, and only if, the native engine denies
// an UPDATE that does not change the stored object, with the same validation, binding and
// param. In particular, the policy matches the stored object.
func TestRatchetOnlyIfKubernetesDeniesTheStoredObject(t *testing.T) {
	t.Logf("repeat with -seed=%d", *seed)
	a := author{Rand: rand.New(rand.NewPCG(*seed, 2))}
	inputs := updateInputs(t)
	var ratcheted, unmatched, denied int
	for i := range *randomPolicies {
		p := a.ratcheting(t)
		policies := []*v1alpha1.WebhookPolicy{p}
		oracle, group := newOracle(policies, testWorld), groupOf(t, policies)
		for _, name := range slices.Sorted(maps.Keys(inputs)) {
			in := inputs[name]
			sent, _, _, err := oracle.engine.Matches(in.attributes())
			if err != nil {
				t.Fatal(err)
			}
			if !sent {
				continue // the API server makes no call
			}
			unchanged := in
			unchanged.object = in.old
			native := oracle.decide(t, in)
			stored := failuresOf(t, oracle.decide(t, unchanged).Annotations)
			var want []failure
			var wantWarnings []string
			for _, f := range failuresOf(t, native.Annotations) {
				isFalse := strings.HasPrefix(f.Message, fmt.Sprintf("validation %d", f.Index))
				switch {
				case !isFalse || !p.Spec.Ratchets(f.Index):
					want = append(want, f)
				case !slices.Contains(stored, f):
					want = append(want, f)
					unmatched++
				default:
					ratcheted++
					text := fmt.Sprintf("WebhookPolicy 'p' with binding '%s'%sspec.validations[%d]: %s", f.Binding, ratchetedText, f.Index, f.Message)
					if !slices.Contains(wantWarnings, text) {
						wantWarnings = append(wantWarnings, text)
					}
				}
			}
			got := decideOurs(t, group, in, testWorld)
			diff := cmp.Diff(want, failuresOf(t, got.Annotations)) + cmp.Diff(wantWarnings, got.Warnings)
			if diff != "" || got.Allowed && len(want) > 0 || native.Allowed && !got.Allowed {
				t.Errorf("policy %d of seed %d, request %q: allowed = %t, failures and warnings (-want +got):\n%s\n%+v", i, *seed, name, got.Allowed, diff, p.Spec)
			}
			if len(want) > 0 {
				denied++
			}
		}
	}
	t.Logf("%d validations ratcheted, %d did not because of the stored object, %d requests denied", ratcheted, unmatched, denied)
	if few := *randomPolicies / 2; *randomPolicies > 50 && (ratcheted < few || unmatched < few || denied < few) {
		t.Errorf("fewer than %d of some kind: the policies have lost their variety", few)
	}
}
