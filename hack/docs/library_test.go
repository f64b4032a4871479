package main

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// TestLibraryFiles compares what is made of the library with what is checked in: each policy
// is in its kustomization, in the chart and in the catalogue, and nothing else is.
func TestLibraryFiles(t *testing.T) {
	root := os.DirFS(filepath.Join("..", ".."))
	want, err := libraryFiles(root)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range want {
		got, err := fs.ReadFile(root, name)
		if diff := cmp.Diff(text, string(got)); diff != "" {
			t.Errorf("%s is stale: run make manifests: %v (-written +file):\n%s", name, err, diff)
		}
	}
	for _, folder := range []string{libraryFolder, path.Join(libraryChart, "files")} {
		err := fs.WalkDir(root, folder, func(name string, entry fs.DirEntry, err error) error {
			if entry.IsDir() {
				return err
			}
			written := path.Base(name) == "kustomization.yaml" || path.Base(name) == "role.yaml" || strings.HasPrefix(name, libraryChart)
			if _, known := want[name]; written && !known && !strings.HasPrefix(name, libraryFolder+"/actions/") {
				t.Errorf("%s belongs to no policy: remove it", name)
			}
			isPart := slices.Contains([]string{"policy.yaml", "policytest.yaml", "definitions.yaml"}, path.Base(name))
			if !written && !isPart {
				t.Errorf("%s is no part of a policy", name)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

const libraryPolicyText = `apiVersion: admission.ostiary.dev/v1alpha1
kind: WebhookPolicy
metadata:
  name: names
  labels: {admission.ostiary.dev/library: best}
  annotations:
    admission.ostiary.dev/title: Names
    admission.ostiary.dev/description: long names
    admission.ostiary.dev/category: Best
    admission.ostiary.dev/severity: low
    admission.ostiary.dev/remediation: Shorten the name.
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}]
  variables:
  # length: that names
  # may have.
  - name: params
    expression: '{"length": 9}'
  validations:
  - expression: object.metadata.name.size() <= variables.params.length
`

func TestReadLibrary(t *testing.T) {
	for name, tt := range map[string]struct{ from, to, want string }{
		"a policy": {},
		"another name": {
			from: "name: names",
			to:   "name: name",
			want: `the policy has the name "name", want that of its folder, "names"`,
		},
		"another category": {
			from: "library: best",
			to:   "library: worst",
			want: `the label admission.ostiary.dev/library is "worst", want "best"`,
		},
		"no title": {
			from: "    admission.ostiary.dev/title: Names\n",
			want: "it has no annotation admission.ostiary.dev/title",
		},
		"an unknown severity": {
			from: "severity: low",
			to:   "severity: none",
			want: `the severity is "none", want one of low, medium, high, critical`,
		},
		"an unknown field": {from: "validations:", to: "validation:", want: `unknown field "validation"`},
		"params in CEL": {
			from: `"length": 9`,
			to:   `"length": 3 * 3`,
			want: "the variable params is no JSON, which the chart writes",
		},
		"params that float": {
			from: `"length": 9`,
			to:   `"length": true`,
			want: "the params of names: length is a bool, want a string, an integer or a list of strings",
		},
		"no comment": {
			from: "  # length: that names\n  # may have.\n",
			want: "describe the params in a comment before the variable params",
		},
		"params at the end": {
			from: "  variables:\n",
			to:   "  variables:\n  - {name: a, expression: '1'}\n",
			want: "move the variable params to the first place",
		},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(libraryPolicyText, tt.from, tt.to, 1)
			got, err := libraryFiles(fstest.MapFS{
				"library/best/names/policy.yaml":     {Data: []byte(text)},
				"charts/ostiary-policies/Chart.yaml": {Data: []byte("name: ostiary-policies\nversion: 0.3.0\n")},
			})
			if tt.want != "" {
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("got %v, want %s", err, tt.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for file, part := range map[string]string{
				"library/kustomization.yaml":                    "components:\n- best\n",
				"library/best/kustomization.yaml":               "components:\n- names\n",
				"library/best/names/kustomization.yaml":         "resources:\n- policy.yaml\n",
				"charts/ostiary-policies/files/best/names.yaml": text,
				"charts/ostiary-policies/values.yaml":           "  # Names: long names\n  names:\n    # length: that names may have.\n    params: {\"length\": 9}\n",
				"charts/ostiary-policies/values.schema.json":    `"length": {`,
				"charts/ostiary-policies/README.md":             "charts/ostiary-policies --version 0.3.0 --namespace ostiary-system\n",
				"docs/reference/library.md":                     "| [names](../../library/best/names/policy.yaml) | Names | long names | low |  | `{\"length\": 9}` |\n",
			} {
				if !strings.Contains(got[file], part) {
					t.Errorf("%s has no %q:\n%s", file, part, got[file])
				}
			}
		})
	}
}
