package policyvalidator

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/validation"
)

// manyOf is the JSON of a policy with a list of so many entries.
func manyOf(list, entry string, n int) []byte {
	entries := make([]string, n)
	for i := range entries {
		entries[i] = fmt.Sprintf(entry, i)
	}
	return []byte(`{"metadata":{"name":"p"},"spec":{"` + list + `":[` + strings.Join(entries, ",") + `]}}`)
}

const (
	oneValidation = `{"expression":"object.metadata.name != 'n%d'"}`
	oneVariable   = `{"name":"v%d","expression":"1"}`
)

// What the definition does not permit is refused before it is compiled.
func TestBeyondTheLimits(t *testing.T) {
	for name, tt := range map[string]struct {
		raw         []byte
		wantRefusal string
	}{
		"validations": {manyOf("validations", oneValidation, 20_000), "spec.validations: Too many: "},
		"variables":   {manyOf("variables", oneVariable, 12_000), "spec.variables: Too many: "},
		"expression": {manyOf("validations", `{"expression":"%d == `+strings.Repeat("1", 17_000)+`"}`, 1),
			"spec.validations[0].expression: Too long: "},
		"labels of a selector": {[]byte(`{"spec":{"matchConstraints":{"objectSelector":{"matchLabels":{` +
			strings.TrimSuffix(strings.Repeat(`"a":"b",`, 101), ",") + `}}}}}`), "spec.matchConstraints.objectSelector.matchLabels: Too many: "},
		"size": {manyOf("unknown", `"`+strings.Repeat("x", validation.MaxStored)+`%d"`, 1), "spec: Too long: "},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReviewer(resources{ago: unknown}, 0)
			req := request(t, admissionv1.Create, newPolicy(), nil)
			req.Object.Raw, req.Name = tt.raw, "p"
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			got, err := r.Review(t.Context(), req)
			runtime.ReadMemStats(&after)
			if err != nil {
				t.Fatal(err)
			}
			if got.Allowed || !strings.Contains(got.Result.Message, tt.wantRefusal) {
				t.Errorf("Review() = %+v, want a refusal with %q", got.Result, tt.wantRefusal)
			}
			if spent := after.TotalAlloc - before.TotalAlloc; spent > 16<<20 {
				t.Errorf("the refusal took %d MiB, want less than 16", spent>>20)
			}
		})
	}
}

// What was stored under other limits stays writable.
func TestBeyondTheLimitsAsBefore(t *testing.T) {
	req := request(t, admissionv1.Update, newPolicy(), newPolicy())
	req.Object.Raw = manyOf("variables", oneVariable, 12_000)
	req.OldObject.Raw = req.Object.Raw
	if got, err := newReviewer(resources{ago: unknown}, 0).Review(t.Context(), req); err != nil || !got.Allowed {
		t.Errorf("Review() = %+v, %v; want it allowed", got, err)
	}
}

// A policy that is brought within the limits is compiled, as a new one is.
func TestBackWithinTheLimits(t *testing.T) {
	for name, tt := range map[string]struct {
		edits       []func(*v1alpha1.WebhookPolicy)
		wantAllowed bool
	}{
		"good":   {wantAllowed: true},
		"broken": {edits: []func(*v1alpha1.WebhookPolicy){broken}},
	} {
		t.Run(name, func(t *testing.T) {
			req := request(t, admissionv1.Update, newPolicy(tt.edits...), newPolicy())
			req.OldObject.Raw = manyOf("variables", oneVariable, 12_000)
			if got, err := newReviewer(resources{ago: unknown}, 0).Review(t.Context(), req); err != nil || got.Allowed != tt.wantAllowed {
				t.Errorf("Review() = %+v, %v; want allowed %t", got, err, tt.wantAllowed)
			}
		})
	}
}
