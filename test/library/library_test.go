// Package library tests the policies in the folder library without a cluster: each is
// accepted without a warning in every supported version of Kubernetes, has tests of all
// results of its expressions, and those of Pod Security decide as Kubernetes' own plugin.
package library

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/cli/lint"
	"github.com/ostiary/ostiary/internal/cli/output"
	"github.com/ostiary/ostiary/internal/cli/policytest"
	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/policy"
)

const folder = "../../library"

// minimum is the number of policies that the library has at least.
const minimum = 60

// policies returns the text of each policy, by the path of its folder.
func policies(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(folder + "/*/*/policy.yaml")
	if err != nil || len(paths) < minimum {
		t.Fatalf("found %d policies: %v", len(paths), err)
	}
	out := map[string]string{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		out[filepath.Dir(path)] = string(text)
	}
	return out
}

// definitions returns the texts of CustomResourceDefinitions that tests need.
func definitions(t *testing.T) (out []string) {
	t.Helper()
	paths, err := filepath.Glob(folder + "/*/*/definitions.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(text))
	}
	return out
}

func parse(t *testing.T, text string) *v1alpha1.WebhookPolicy {
	t.Helper()
	p := &v1alpha1.WebhookPolicy{}
	if err := yaml.UnmarshalStrict([]byte(text), p); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestLint checks every policy as it is and as it is enforced.
func TestLint(t *testing.T) {
	for path, text := range policies(t) {
		if !strings.Contains(text, "validationActions: [Audit]") && !strings.Contains(text, "mutations:") {
			t.Errorf("%s: the binding has not exactly the action Audit", path)
		}
	}
	for _, actions := range []string{"[Audit]", "[Deny, Audit]"} {
		all := definitions(t)
		others := len(all)
		for _, text := range policies(t) {
			all = append(all, strings.Replace(text, "validationActions: [Audit]", "validationActions: "+actions, 1))
		}
		objects, err := load.Objects(t.Context(), []string{load.Stdin}, load.Options{Stdin: strings.NewReader(strings.Join(all, "---\n"))})
		if err != nil {
			t.Fatal(err)
		}
		for version := policy.OldestEngine; version <= policy.LatestEngine; version++ {
			findings, checked, err := lint.Check(t.Context(), objects, nil, version, time.Now())
			if err != nil || checked != len(all)-others {
				t.Fatalf("checked %d of %d policies: %v", checked, len(all), err)
			}
			for _, f := range findings {
				t.Errorf("with the actions %s in Kubernetes %s: %s: %s: %s", actions, version, f.Policy, f.Field, f.Message)
			}
		}
	}
}

// TestPolicyTests runs the test of each policy, which has the name of the policy.
func TestPolicyTests(t *testing.T) {
	streams, _, out, _ := genericiooptions.NewTestIOStreams()
	c := policytest.NewCommand(&output.Options{IOStreams: streams})
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetArgs([]string{folder, "--coverage-min", "100"})
	if err := c.ExecuteContext(t.Context()); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	suites, err := policytest.Load(t.Context(), []string{folder}, policytest.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	tested := map[string]bool{}
	for _, s := range suites {
		tested[s.Name] = true
		if diff := cmp.Diff([]string{s.Name}, s.Policies); diff != "" {
			t.Errorf("the test %s has other policies (-want +got):\n%s", s.Name, diff)
		}
	}
	for path := range policies(t) {
		if !tested[filepath.Base(path)] {
			t.Errorf("%s has no PolicyTest", path)
		}
	}
}

// TestFolders finds files that are not part of a policy.
func TestFolders(t *testing.T) {
	for path, text := range policies(t) {
		want := []string{"kustomization.yaml", "policy.yaml", "policytest.yaml"}
		if len(parse(t, text).Spec.Lookups) > 0 {
			want = append(want, "role.yaml")
		}
		entries, err := os.ReadDir(path)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range entries {
			if e.Name() != "definitions.yaml" { // of its test
				got = append(got, e.Name())
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
}

// shared are names of variables and conditions that mean the same in all policies.
var shared = regexp.MustCompile(`^(containers|containersAndPod|subjects|rules|hosts|not-windows|not-in-user-namespace|not-control-plane)$`)

// TestSharedExpressions finds expressions that were changed in some policies only.
func TestSharedExpressions(t *testing.T) {
	first := map[string]string{}
	for path, text := range policies(t) {
		p := parse(t, text)
		check := func(name, expression string) {
			if !shared.MatchString(name) {
				return
			}
			if first[name] == "" {
				first[name] = expression
			}
			if diff := cmp.Diff(first[name], expression); diff != "" {
				t.Errorf("%s: %s differs from that of another policy (-other +this):\n%s", path, name, diff)
			}
		}
		for _, v := range p.Spec.Variables {
			check(v.Name, v.Expression)
		}
		for _, c := range p.Spec.MatchConditions {
			check(c.Name, c.Expression)
		}
		if p.Spec.MatchConstraints.NamespaceSelector != nil {
			t.Errorf("%s has a namespaceSelector, which exclusions of users replace: use a match condition", path)
		}
	}
	if len(first) < 8 {
		t.Errorf("found the shared expressions %v", first)
	}
}
