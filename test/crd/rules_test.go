package crd

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/advice"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/validation"
)

// divergence is a reason for which internal/validation refuses some policies in other words
// than the definition, with these words, by the name of the case.
type divergence struct {
	Reason string              `json:"reason"`
	Cases  map[string][]string `json:"cases"`
}

// What the definition says about a policy, on a real API server, internal/validation says
// too, with the same field, type and message. Exceptions have a reason: onlyDefined lists
// what internal/validation accepts, and testdata/divergences.yaml what it says in other
// words. It is an error if an entry has become unnecessary.
func TestRulesAgree(t *testing.T) {
	listed := map[string][]string{}
	for _, d := range readDivergences(t) {
		if len(strings.Fields(d.Reason)) < 5 {
			t.Errorf("the reason %q is too short", d.Reason)
		}
		for name, errs := range d.Cases {
			if _, twice := listed[name]; twice {
				t.Errorf("%q is listed twice", name)
			}
			listed[name] = errs
		}
	}
	for reason, names := range onlyDefined() {
		if len(strings.Fields(reason)) < 5 {
			t.Errorf("the reason %q is too short", reason)
		}
		for _, name := range names {
			if _, twice := listed[name]; twice {
				t.Errorf("%q is listed twice", name)
			}
			listed[name] = []string{}
		}
	}
	check := newRules(t)
	for name, tc := range refusedCases() {
		t.Run(name, func(t *testing.T) {
			errs, _, failure := check(t, tc.fields)
			got := render(errs, failure)
			want, diverges := listed[name]
			delete(listed, name)
			switch agree := failure == "" && sameErrors(tc.want, errs); {
			case agree && diverges:
				t.Error("both say the same: remove the exception")
			case !agree && !diverges:
				t.Errorf("the definition says %q, internal/validation says %q: make them equal, or list the exception", tc.want, got)
			case diverges:
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("internal/validation (-want +got):\n%s", diff)
				}
			}
		})
	}
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		t.Errorf("the exception %q is no case", name)
	}
}

func readDivergences(t *testing.T) []divergence {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "divergences.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var out []divergence
	if err := yaml.UnmarshalStrict(raw, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// newRules returns a function that applies the rules of internal/validation, in the order of
// the webhook for policies, to the policy of some fields. The failure is that of the decoder.
func newRules(t *testing.T) func(t *testing.T, fields string) (errs field.ErrorList, warnings []string, failure string) {
	limits, err := validation.ReadLimits()
	if err != nil {
		t.Fatal(err)
	}
	compiler := policy.NewCompiler()
	return func(t *testing.T, fields string) (field.ErrorList, []string, string) {
		object := policyWith(t, fields)
		raw, err := object.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if beyond := limits.Check(raw); beyond != nil {
			return field.ErrorList{beyond}, nil, ""
		}
		p := &v1alpha1.WebhookPolicy{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, p); err != nil {
			return nil, nil, err.Error()
		}
		v, warnings := validation.Review(compiler, p, validation.ClusterInfo{})
		texts := advice.Texts(warnings)
		for i := range texts {
			texts[i] = "warning: " + texts[i]
		}
		return v.Errors, texts, ""
	}
}

// render writes errors without their values, which can be long.
func render(errs field.ErrorList, failure string) []string {
	out := []string{}
	for _, e := range errs {
		out = append(out, strings.TrimSuffix(fmt.Sprintf("%s: %s: %s", e.Field, e.Type, e.Detail), ": "))
	}
	if failure != "" {
		out = append(out, failure)
	}
	return out
}

// sameErrors reports whether errors are what an API server says, in any order. An API server
// also quotes most values.
func sameErrors(causes []string, errs field.ErrorList) bool {
	left := slices.Clone(errs)
	for _, cause := range causes {
		at := slices.IndexFunc(left, func(e *field.Error) bool {
			rest, ok := strings.CutPrefix(cause, e.Field+": "+e.Type.String())
			return ok && (rest == "" && e.Detail == "" || e.Detail != "" && strings.HasSuffix(rest, ": "+e.Detail))
		})
		if at < 0 {
			return false
		}
		left = slices.Delete(left, at, at+1)
	}
	return len(left) == 0
}

func testOnlyValidated(t *testing.T, policies dynamic.ResourceInterface) {
	check := newRules(t)
	cases := onlyValidated()
	maps.Copy(cases, validatedActions())
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := dryRun(t, policies, policyWith(t, tc.fields)); err != nil {
				t.Errorf("the definition refuses it too, although %s: %v", tc.reason, err)
			}
			errs, warnings, failure := check(t, tc.fields)
			if diff := cmp.Diff(tc.want, append(render(errs, failure), warnings...)); diff != "" {
				t.Errorf("internal/validation (-want +got):\n%s", diff)
			}
		})
	}
}
