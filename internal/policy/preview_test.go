package policy

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

const previewing = "bindings: [{name: b, mutationAction: Preview}]\n"

func TestPreview(t *testing.T) {
	adds := mutations(label("a", `"b"`))
	fails := mutations(label("a", `"b"`), label("c", "string(object.nope)"))
	reports := func(d Decision, v ...Violation) []reported {
		for i := range v {
			v[i].Binding = "b"
		}
		return []reported{{"p", d, v}}
	}
	preview := Violation{Decision: DecisionPreview, Message: "the mutations would change the object: add /metadata/labels/a"}
	failure := Violation{Decision: DecisionError, Message: "no such key at spec.mutations[1]"}
	tests := map[string]struct {
		specs       map[string]string
		values      bool
		mayBreak    bool
		wantPatch   string
		wantAudit   map[string]string
		wantWarned  []string
		wantReports []reported
		decisions   map[string]Decision
	}{
		"a change": {
			specs: map[string]string{"p": adds + previewing}, wantAudit: map[string]string{"p.preview": "b: add /metadata/labels/a"},
			wantReports: reports(DecisionPreview, preview), decisions: map[string]Decision{"p": DecisionPreview},
		},
		"with values": {
			specs: map[string]string{"p": adds + previewing}, values: true, wantAudit: map[string]string{"p.preview": "b: add /metadata/labels/a"},
			wantReports: reports(DecisionPreview, Violation{
				Decision: DecisionPreview, Message: `[{"op":"add","path":"/metadata/labels/a","value":"b"}]`,
			}),
			decisions: map[string]Decision{"p": DecisionPreview},
		},
		"no change": {
			specs: map[string]string{"p": mutations(label("team", `"shop"`)) + previewing}, decisions: map[string]Decision{"p": DecisionAllow},
		},
		"a warning": {
			specs:       map[string]string{"p": adds + "bindings: [{name: b, mutationAction: Preview, validationActions: [Warn]}]"},
			wantAudit:   map[string]string{"p.preview": "b: add /metadata/labels/a"},
			wantWarned:  []string{"WebhookPolicy 'p' with binding 'b' would change the object: add /metadata/labels/a"},
			wantReports: reports(DecisionPreview, preview), decisions: map[string]Decision{"p": DecisionPreview},
		},
		"a later policy sees the unchanged object": {
			specs: map[string]string{
				"p": adds + previewing,
				"q": mutations(label("seen", `string("a" in object.metadata.labels)`)),
			},
			wantPatch: `[{"op":"add","path":"/metadata/labels/seen","value":"false"}]`,
			wantAudit: map[string]string{"p.preview": "b: add /metadata/labels/a"}, wantReports: reports(DecisionPreview, preview),
			decisions: map[string]Decision{"p": DecisionPreview, "q": DecisionMutate},
		},
		"another binding applies": {
			specs: map[string]string{
				"p": adds + "bindings: [{name: a, mutationAction: Apply, matchResources: {objectSelector: {matchLabels: {team: other}}}}, " +
					"{name: b, mutationAction: Preview}]",
			},
			wantAudit: map[string]string{"p.preview": "b: add /metadata/labels/a"}, wantReports: reports(DecisionPreview, preview),
			decisions: map[string]Decision{"p": DecisionPreview},
		},
		"an error denies nothing": {
			specs: map[string]string{"p": fails + previewing}, wantReports: reports(DecisionError, failure),
			decisions: map[string]Decision{"p": DecisionError},
		},
		"an error that is ignored keeps the other changes": {
			specs:       map[string]string{"p": fails + previewing + "failurePolicy: Ignore"},
			wantAudit:   map[string]string{"p.preview": "b: add /metadata/labels/a"},
			wantReports: reports(DecisionError, failure, preview), decisions: map[string]Decision{"p": DecisionError},
		},
		"break glass has nothing to skip": {
			specs: map[string]string{"p": "breakGlass: true\n" + adds + previewing}, mayBreak: true,
			wantAudit:   map[string]string{"p.preview": "b: add /metadata/labels/a"},
			wantReports: reports(DecisionPreview, preview), decisions: map[string]Decision{"p": DecisionPreview},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var got []reported
			decisions := map[string]Decision{}
			host := testWorld.host()
			host.Violated, host.Observe = reportInto(&got), observeInto(decisions)
			if tt.values {
				host.ReportsValues = func(schema.GroupResource, string) bool { return true }
			}
			if tt.mayBreak {
				host.Authorizer = &answering{decision: authorizer.DecisionAllow}
			}
			resp := mutate(t, groupFrom(t, tt.specs), podInput(t, admission.Create).review(t), host)
			if !resp.Allowed {
				t.Fatalf("denied: %v", resp.Result)
			}
			want := []any{tt.wantPatch, tt.wantAudit, tt.wantWarned, tt.wantReports, tt.decisions}
			if diff := cmp.Diff(want, []any{string(resp.Patch), resp.AuditAnnotations, resp.Warnings, got, decisions}); diff != "" {
				t.Errorf("patch, annotations, warnings, violations, decisions (-want +got):\n%s", diff)
			}
		})
	}
}

// TestUnreadablePreview: a preview does not deny an object that cannot be read, and the validations
// of the policy do.
func TestUnreadablePreview(t *testing.T) {
	for name, tt := range map[string]struct {
		spec        string
		wantAllowed bool
	}{
		"applied":   {mutations(label("a", `"b"`)), false},
		"previewed": {mutations(label("a", `"b"`)) + previewing, true},
	} {
		t.Run(name, func(t *testing.T) {
			raw := podInput(t, admission.Create).review(t)
			raw.Object.Raw = []byte(`{"a":1e400}`)
			if resp := mutate(t, groupFrom(t, map[string]string{"p": tt.spec}), raw, testWorld.host()); resp.Allowed != tt.wantAllowed {
				t.Errorf("allowed is %t, want %t: %+v", resp.Allowed, tt.wantAllowed, resp.Result)
			}
		})
	}
}

// previewOf returns the policy with bindings that preview.
func previewOf(t *testing.T, p *v1alpha1.WebhookPolicy) *Group {
	t.Helper()
	p = p.DeepCopy()
	for i := range p.Spec.Bindings {
		p.Spec.Bindings[i].MutationAction = v1alpha1.MutationActionPreview
	}
	return groupOf(t, []*v1alpha1.WebhookPolicy{p})
}

// previewedPatches returns the previewed changes of a request in order, and fails if it is changed.
func previewedPatches(t *testing.T, previewing *Group, raw *admissionv1.AdmissionRequest) (patches []string, failed bool) {
	t.Helper()
	host := testWorld.host()
	host.Kinds = canaryParams{}
	host.ReportsValues = func(schema.GroupResource, string) bool { return true }
	host.Violated = func(v ViolationReport) {
		failed = failed || v.Decision == DecisionError
		for _, d := range v.Violations() {
			if d.Decision == DecisionPreview {
				patches = append(patches, d.Message)
			}
		}
	}
	before := raw.DeepCopy()
	resp := mutate(t, previewing, raw, host)
	if diff := cmp.Diff(before, raw); diff != "" || !resp.Allowed || len(resp.Patch) > 0 || resp.PatchType != nil {
		t.Fatalf("a preview changes or denies the request: %+v, %s", resp, diff)
	}
	return patches, failed
}

// patched applies patches to an object.
func patched(t *testing.T, object []byte, patches ...string) any {
	t.Helper()
	for _, text := range patches {
		p, err := jsonpatch.DecodePatch([]byte(text))
		if err == nil {
			object, err = p.Apply(object)
		}
		if err != nil {
			t.Fatalf("applying %s: %v", text, err)
		}
	}
	var out any
	if err := json.Unmarshal(object, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestPreviewsEqualAppliedChanges compares the previews of policies written at random with what
// they change once they are applied.
func TestPreviewsEqualAppliedChanges(t *testing.T) {
	t.Logf("repeat with -seed=%d", *seed)
	a := author{Rand: rand.New(rand.NewPCG(*seed, 41))}
	inputs := mutableInputs(t)
	maps.DeleteFunc(inputs, func(_ string, in input) bool { return in.object == nil })
	names := slices.Sorted(maps.Keys(inputs))
	counts := map[string]int{}
	for i := range *randomPolicies * 17 { // 2,040 by default
		p := a.mutating("p")
		if len(p.Spec.Bindings) == 0 {
			p.Spec.Bindings = []v1alpha1.Binding{{Name: "b"}}
		}
		applying, previewing := groupOf(t, []*v1alpha1.WebhookPolicy{p}), previewOf(t, p)
		for j := range 3 {
			name := names[(3*i+j)%len(names)]
			raw := inputs[name].review(t)
			applied := mutate(t, applying, raw, testWorld.host())
			patches, failed := previewedPatches(t, previewing, raw)
			if !applied.Allowed {
				counts["denied"]++
				if !failed {
					t.Fatalf("policy %d, %s: the preview has no error, and the policy denies: %v", i, name, applied.Result)
				}
				continue
			}
			counts[fmt.Sprintf("changes: %t", len(applied.Patch) > 0)]++
			want := patched(t, raw.Object.Raw)
			if len(applied.Patch) > 0 {
				want = patched(t, raw.Object.Raw, string(applied.Patch))
			}
			if diff := cmp.Diff(want, patched(t, raw.Object.Raw, patches...)); diff != "" {
				t.Fatalf("policy %d, %s: the previewed object differs from the changed one (-changed +previewed):\n%s", i, name, diff)
			}
			if len(p.Spec.Bindings) == 1 && len(patches) == 1 && len(applied.Patch) > 0 && patches[0] != string(applied.Patch) {
				t.Fatalf("policy %d, %s: previewed %s, applied %s", i, name, patches[0], applied.Patch)
			}
		}
	}
	if counts["denied"] < 50 || counts["changes: true"] < 50 || counts["changes: false"] < 50 {
		t.Errorf("the cases are too much alike: %v", counts)
	}
	t.Logf("requests: %v", counts)
}

// TestPreviewOfPodTemplates: the preview is about the Pod of the template, with its validationActions.
func TestPreviewOfPodTemplates(t *testing.T) {
	spec := "podTemplates: {validationActions: [Warn]}\n" + mutations(label("a", `"b"`)) + previewing
	raw := workloadRequest(t, deploymentsResource,
		workloadYAML("Deployment", "", `{template: {metadata: {labels: {app: web}}, spec: {containers: []}}}`), "")
	resp := mutate(t, templateGroupFrom(t, map[string]string{"p": spec}), raw, testWorld.host())
	want := []any{"b at spec.template: add /metadata/labels/a",
		[]string{"WebhookPolicy 'p' with binding 'b' would change the object at spec.template: add /metadata/labels/a"}, ""}
	if diff := cmp.Diff(want, []any{resp.AuditAnnotations["p.preview"], resp.Warnings, string(resp.Patch)}); diff != "" {
		t.Errorf("annotation, warnings, patch (-want +got):\n%s", diff)
	}
}
