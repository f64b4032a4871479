package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// Differences that need more than policies and requests to be seen.

func configMapsAre(edit func(*v1alpha1.WebhookPolicySpec)) v1alpha1.WebhookPolicySpec {
	s := v1alpha1.WebhookPolicySpec{MatchConstraints: markerMatch("")}
	s.MatchConstraints.NamespaceSelector = nil
	s.Bindings = []v1alpha1.Binding{{Name: "b", ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}}}
	edit(&s)
	return s
}

func saying(messageExpression string) []v1alpha1.Validation {
	return []v1alpha1.Validation{{Expression: "false", MessageExpression: messageExpression}}
}

// verdict puts one policy and one request, for a ConfigMap, to both engines.
func verdict(t *testing.T, spec v1alpha1.WebhookPolicySpec) *Verdict {
	t.Helper()
	c := Case{Name: t.Name(), Policies: []v1alpha1.WebhookPolicySpec{spec}, Requests: []Request{
		post("/api/v1/namespaces/{ns}/configmaps", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"made"}}`),
	}}
	var out *Verdict
	if err := suite.Run(t.Context(), []Case{c}, func(v *Verdict) { out = v }); err != nil {
		t.Fatal(err)
	}
	if out.Outcome == notInstalled {
		t.Fatal(out.Report())
	}
	return out
}

// TestLongAnswersDiffer: the native engine notes all there is; Ostiary says how
// much it has left out. Of warnings the API server sends what fits, and Ostiary's
// are the longer ones.
func TestLongAnswersDiffer(t *testing.T) {
	const warnings, annotations = 70, 9
	v := verdict(t, configMapsAre(func(s *v1alpha1.WebhookPolicySpec) {
		s.Bindings[0].ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Warn}
		s.Variables = []admissionregistrationv1.Variable{{Name: "long", Expression: `"` + strings.Repeat("a", 1000) + `"`}}
		for i := range warnings {
			s.Validations = append(s.Validations, v1alpha1.Validation{Expression: "false", Message: fmt.Sprintf("m%d", i)})
		}
		for i := range annotations {
			s.AuditAnnotations = append(s.AuditAnnotations, admissionregistrationv1.AuditAnnotation{
				Key: fmt.Sprintf("k%d", i), ValueExpression: strings.Repeat("variables.long + ", 9) + `""`,
			})
		}
	}))
	noted := func(a *Answer) (n int, leftOut string) {
		for key, value := range a.Annotations {
			switch {
			case strings.HasSuffix(key, "/left_out"):
				leftOut = value
			case strings.HasPrefix(value, "aaa"):
				n++
			}
		}
		return n, leftOut
	}
	if n, leftOut := noted(v.Native); n != annotations || leftOut != "" {
		t.Errorf("the native engine gives %d annotations and %q", n, leftOut)
	}
	if n, leftOut := noted(v.Ours); n != 5 || leftOut != "0 validation failures and 4 values of audit annotations" {
		t.Errorf("Ostiary gives %d annotations and %q", n, leftOut)
	}
	if native, ours := len(v.Native.Warnings), len(v.Ours.Warnings); ours == 0 || ours >= native || native >= warnings {
		t.Errorf("the native engine gives %d warnings, Ostiary %d of %d", native, ours, warnings)
	}
}

// TestStaleParamsDiffer: the native engine watches the params of a built-in kind
// until no policy uses the kind any more, and never again. What it saw last is
// what later policies get.
func TestStaleParamsDiffer(t *testing.T) {
	template := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "PodTemplate",
		"metadata": map[string]any{"name": "stale", "namespace": "params", "labels": map[string]any{"max": "before"}},
		"template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "a", "image": "registry.test/a"}}}},
	}}
	reading := configMapsAre(func(s *v1alpha1.WebhookPolicySpec) {
		s.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "PodTemplate"}
		s.Validations = saying("'max is ' + params.metadata.labels.max")
		s.Bindings[0].ParamRef = &admissionregistrationv1.ParamRef{
			Name:                    "stale",
			Namespace:               "params",
			ParameterNotFoundAction: new(admissionregistrationv1.DenyAction),
		}
	})
	for _, e := range suite.engines {
		if err := e.create(t.Context(), template.DeepCopy()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := e.deleteAll(context.WithoutCancel(t.Context()), []*unstructured.Unstructured{template}); err != nil {
				t.Error(err)
			}
		})
	}
	if v := verdict(t, reading); v.Diff != "" || !strings.HasSuffix(v.Ours.Message, "max is before") {
		t.Error(v.Report())
	}
	// Once another policy is enforced, no engine has one for this kind any more.
	verdict(t, configMapsAre(func(s *v1alpha1.WebhookPolicySpec) { s.Validations = saying("'none'") }))
	template.SetLabels(map[string]string{"max": "after"})
	for _, e := range suite.engines {
		if _, err := e.client(template).Update(t.Context(), template, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	v := verdict(t, reading)
	if !strings.HasSuffix(v.Native.Message, "max is before") || !strings.HasSuffix(v.Ours.Message, "max is after") {
		t.Error(v.Report())
	}
}

// TestSchemaOfANewKindDiffers: for some seconds after a kind is defined, its
// schema is not known. The native engine then answers 503, though errors are to
// be ignored.
func TestSchemaOfANewKindDiffers(t *testing.T) {
	const group, tries = "late.conformance.test", 5
	spec := v1alpha1.WebhookPolicySpec{
		MatchConstraints: markerMatch(""),
		FailurePolicy:    new(admissionregistrationv1.Ignore),
		Mutations: []admissionregistrationv1.Mutation{{
			PatchType: admissionregistrationv1.PatchTypeApplyConfiguration,
			ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{
				Expression: `Object{metadata: Object.metadata{labels: {"mended": "yes"}}}`,
			},
		}},
		Bindings: []v1alpha1.Binding{{Name: "b"}},
	}
	spec.MatchConstraints.NamespaceSelector = nil
	spec.MatchConstraints.ResourceRules[0].Rule = admissionregistrationv1.Rule{
		APIGroups:   []string{group},
		APIVersions: []string{"*"},
		Resources:   []string{"*"},
	}
	p, err := place(Case{Name: t.Name(), ByObject: true, Policies: []v1alpha1.WebhookPolicySpec{spec}}, 0, suite.slots[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range suite.engines {
		suite.batches++
		done, err := e.install(t.Context(), suite.batches, p.policies)
		if err != nil || len(done.refused) > 0 {
			t.Fatal(err, done.refused)
		}
		t.Cleanup(func() {
			if err := e.deleteAll(context.WithoutCancel(t.Context()), done.objects); err != nil {
				t.Error(err)
			}
		})
		unavailable := false
		for i := range tries {
			r := firstAnswer(t, e, group, fmt.Sprintf("v%d", i+1), p.slot)
			unavailable = r.code == http.StatusServiceUnavailable && strings.Contains(string(r.body), " not found. There can be a delay ")
			if e.name != "native" && r.code != http.StatusCreated {
				t.Errorf("Ostiary answers %d: %s", r.code, r.body)
			}
			if unavailable || e.name != "native" {
				break // else the schema was read just in time
			}
		}
		if e.name == "native" && !unavailable {
			t.Error("the native engine knew the schemas of all kinds at once")
		}
	}
}

// firstAnswer defines a kind and returns what comes of the first request for it
// that the API server serves.
func firstAnswer(t *testing.T, e *engine, group, version string, s slot) *reply {
	t.Helper()
	plural := "late" + version + "s"
	kind := schema.GroupVersionKind{Group: group, Version: version, Kind: "Late" + version}
	crd := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": plural + "." + group},
		"spec": map[string]any{
			"group": group, "scope": "Cluster", "names": map[string]any{"plural": plural, "kind": kind.Kind},
			"versions": []any{
				map[string]any{
					"name":    version,
					"served":  true,
					"storage": true,
					"schema":  map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}},
				},
			},
		},
	}}
	if err := e.create(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.deleteAll(context.WithoutCancel(t.Context()), []*unstructured.Unstructured{crd}); err != nil {
			t.Error(err)
		}
	})
	body, err := json.Marshal(map[string]any{
		"apiVersion": group + "/" + version,
		"kind":       kind.Kind,
		"metadata":   map[string]any{"name": "made", "labels": map[string]any{"slot": s.label}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), readyTimeout)
	defer cancel()
	for {
		r, err := e.send(ctx, post("/apis/"+group+"/"+version+"/"+plural, string(body)))
		if err != nil {
			t.Fatal(err)
		}
		if r.code != http.StatusNotFound {
			return r
		}
		time.Sleep(10 * time.Millisecond)
	}
}
