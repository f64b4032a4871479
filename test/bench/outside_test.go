package bench_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/test/bench"
	"github.com/ostiary/ostiary/test/documents"
)

// TestOutsideOfBatch bounds how many policies are evaluated outside of the batch, each with a
// reason. Lower a bound when there are fewer. Those with lookups are evaluated alone by design (decision 30).
func TestOutsideOfBatch(t *testing.T) {
	compiler := policy.NewCompiler()
	for name, tt := range map[string]struct {
		policies []*v1alpha1.WebhookPolicy
		most     int
	}{
		"set R2":       {policiesOf(t, bench.R2), 0},
		"the library":  {libraryPolicies(t), 1},
		"the examples": {examplePolicies(t), 0},
	} {
		t.Run(name, func(t *testing.T) {
			var outside []string
			all := 0
			for _, p := range tt.policies {
				if len(p.Spec.Lookups) > 0 {
					continue
				}
				all++
				if b := compiler.Batching(p); b.Alone != "" {
					outside = append(outside, p.Name+": "+b.Alone)
				} else if b.Sizes == 0 {
					t.Errorf("%s: the batch evaluates it for no size of requests, without a reason", p.Name)
				}
			}
			slices.Sort(outside)
			share := fmt.Sprintf("%d of %d policies (%.1f %%)", len(outside), all, 100*float64(len(outside))/float64(all))
			t.Logf("outside of the batch are %s:\n%s", share, strings.Join(outside, "\n"))
			if len(outside) > tt.most {
				t.Errorf("outside of the batch are %s, want at most %d", share, tt.most)
			}
		})
	}
}

// libraryPolicies are those with validations: nothing else is evaluated in a batch.
func libraryPolicies(t *testing.T) []*v1alpha1.WebhookPolicy {
	t.Helper()
	paths, err := filepath.Glob("../../library/*/*/policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var out []*v1alpha1.WebhookPolicy
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		out = appendValidating(t, out, path, string(text))
	}
	return out
}

// examplePolicies are those of the documents, also of the cookbook, and of the samples.
func examplePolicies(t *testing.T) []*v1alpha1.WebhookPolicy {
	t.Helper()
	all, err := documents.All("../..")
	if err != nil {
		t.Fatal(err)
	}
	var out []*v1alpha1.WebhookPolicy
	for _, document := range all {
		examples, err := documents.Examples("../..", document)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range examples {
			out = appendValidating(t, out, document, e.Manifest)
		}
	}
	return out
}

func appendValidating(t *testing.T, to []*v1alpha1.WebhookPolicy, path, manifest string) []*v1alpha1.WebhookPolicy {
	t.Helper()
	p := &v1alpha1.WebhookPolicy{}
	if err := yaml.Unmarshal([]byte(manifest), p); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if len(p.Spec.Validations) == 0 {
		return to
	}
	return append(to, p)
}
