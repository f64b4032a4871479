package typechecking

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/advice"
	"github.com/ostiary/ostiary/internal/policy"
)

const seeCondition = "see the condition Rehearsed, or run kubectl ostiary lint"

// TestRehearse checks the number of findings, and that a client waits a limited time for them.
func TestRehearse(t *testing.T) {
	labelled := []v1alpha1.Validation{{Expression: "object.metadata.labels.a != ''"}}
	quantities := func(n int) (out []v1alpha1.Validation) {
		for i := range n {
			out = append(out, v1alpha1.Validation{Expression: fmt.Sprintf(`object.?data.?limits.l%d.orValue("") <= "1Gi"`, i)})
		}
		return out
	}
	warning := func(i int) string {
		return fmt.Sprintf(`spec.validations[%[1]d].expression: object.?data.?limits.l%[1]d.orValue("") is a quantity, `+
			`which is a text such as "500m", and is not compared by its amount: `+
			`use quantity(object.?data.?limits.l%[1]d.orValue("")).compareTo(quantity(...))`, i)
	}
	tests := map[string]struct {
		validations []v1alpha1.Validation
		found       []advice.Warning // by the check of types
		busy        bool             // with another policy
		want        []string
	}{
		"right": {validations: []v1alpha1.Validation{{Expression: "has(object.metadata.labels)"}}},
		"a finding": {validations: labelled, want: []string{
			`spec.validations[0].expression: CREATE of configmaps can fail with "no such key: labels": write object.metadata.?labels.?a.orValue("")`,
		}},
		"a finding whose cause is known": {validations: labelled, found: []advice.Warning{
			{Field: "spec.validations[0].expression", Text: "undefined field"},
		}},
		"another warning is known": {
			validations: quantities(1),
			found:       []advice.Warning{{Field: "spec.validations[0].expression", Text: "w"}},
			want:        []string{warning(0)},
		},
		"more findings than warnings": {validations: quantities(maxApplied + 2), want: []string{
			warning(0), warning(1), warning(2), warning(3), warning(4), "2 more findings: " + seeCondition,
		}},
		"another rehearsal does not end": {validations: labelled, busy: true, want: []string{
			"not rehearsed: other policies were rehearsed until the time for it ended; " + seeCondition,
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lists := Served{{Version: "v1"}: {{Name: "configmaps", Kind: "ConfigMap", Namespaced: true}}}
				c := New(Options{Client: &list{}, Resources: &served{}, Engines: policy.NewCompiler(), Log: logr.Discard()})
				p := policyFor("p", tt.validations...)
				rule := &p.Spec.MatchConstraints.ResourceRules[0].Rule
				rule.APIGroups, rule.Resources = []string{""}, []string{"configmaps"}
				if tt.busy {
					c.rehearsals.slot <- struct{}{}
				}
				start := time.Now()
				got := c.Rehearse(t.Context(), p, lists, tt.found)
				if took := time.Since(start); took > rehearseWithin+rehearsalMargin {
					t.Errorf("the client waited %s", took)
				}
				if diff := cmp.Diff(tt.want, advice.Texts(got)); diff != "" {
					t.Errorf("warnings (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestCustomResourcesAreRehearsed uses the schema that the API server publishes.
func TestCustomResourcesAreRehearsed(t *testing.T) {
	text := strings.ReplaceAll(apps("size"), `"group":"apps"`, `"group":"example.com"`)
	gv := schema.GroupVersion{Group: "apps", Version: "v1"}
	resource := metav1.APIResource{Name: "deployments", Kind: "Deployment", Group: "example.com", Version: "v1"}
	c := New(Options{Client: &list{text: text}, Resources: &served{}, Engines: policy.NewCompiler(), Log: logr.Discard()})
	p := policyFor("p", v1alpha1.Validation{Expression: "object.size < 5"})
	got := c.Rehearse(t.Context(), p, Served{gv: {resource}}, nil)
	want := []string{`spec.validations[0].expression: CREATE of deployments can fail with "no such key: size": write object.?size.orValue(0)`}
	if diff := cmp.Diff(want, advice.Texts(got)); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}
