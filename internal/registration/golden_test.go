package registration

import (
	"bytes"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/validation"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var testService = Endpoint{Service: &Service{Namespace: "ostiary-system", Name: "ostiary-webhook", Port: 443}}

// TestGolden plans the policies of each file in testdata/policies and compares
// the configurations with the file of the same name in testdata/golden.
func TestGolden(t *testing.T) {
	inputs := map[string]Input{
		"url-endpoint":      {Endpoint: Endpoint{URL: "https://127.0.0.1:9443"}},
		"service-port":      {Endpoint: Endpoint{Service: &Service{Namespace: "doors", Name: "keeper", Port: 8443}}},
		"exempt-namespaces": {Endpoint: testService, ExemptNamespaces: []string{"ostiary-system", "kube-system", "cni"}},
	}
	names := baseNames(t, "testdata/policies")
	if len(names) < 40 {
		t.Errorf("%d files in testdata/policies, want at least 40", len(names))
	}
	for name := range inputs {
		if !slices.Contains(names, name) {
			t.Errorf("testdata/policies/%s.yaml is missing", name)
		}
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			in, ok := inputs[name]
			if !ok {
				in = Input{Endpoint: testService, ExemptNamespaces: []string{"ostiary-system"}}
			}
			in.Policies = readPolicies(t, filepath.Join("testdata/policies", name+".yaml"))
			in.CABundle = []byte("-----BEGIN CERTIFICATE-----\n")
			for _, policy := range in.Policies {
				if errs := validation.Check(policy); len(errs) > 0 {
					t.Errorf("Check(%s) = %v", policy.Name, errs.ToAggregate())
				}
			}
			plan := Build(in)
			checkConfigurations(t, plan)
			compareGolden(t, filepath.Join("testdata/golden", name+".yaml"), planYAML(t, plan))
		})
	}
	if golden := baseNames(t, "testdata/golden"); !slices.Equal(golden, names) {
		t.Errorf("testdata/golden and testdata/policies have different files (-policies +golden):\n%s", cmp.Diff(names, golden))
	}
}

// readPolicies returns the policies of a file. Their UIDs depend on their names.
func readPolicies(t *testing.T, path string) []*v1alpha1.WebhookPolicy {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var policies []*v1alpha1.WebhookPolicy
	for document := range bytes.SplitSeq(content, []byte("\n---\n")) {
		policy := &v1alpha1.WebhookPolicy{}
		if err := yaml.UnmarshalStrict(document, policy); err != nil {
			t.Fatalf("reading %s: %v", path, err)
		}
		if policy.Name == "" {
			continue
		}
		policy.UID = types.UID("uid-of-" + policy.Name)
		policies = append(policies, policy)
	}
	return policies
}

func planYAML(t *testing.T, plan Plan) []byte {
	t.Helper()
	var out bytes.Buffer
	for _, group := range plan.Groups {
		document, err := yaml.Marshal(group.Configuration)
		if err != nil {
			t.Fatal(err)
		}
		out.WriteString("---\n")
		out.Write(document)
	}
	return out.Bytes()
}

func compareGolden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (run with -update to write it)", err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

func baseNames(t *testing.T, dir string) []string {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, file := range files {
		names[strings.TrimSuffix(file.Name(), ".yaml")] = true
	}
	return slices.Sorted(maps.Keys(names))
}
