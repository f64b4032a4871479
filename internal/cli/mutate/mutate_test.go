package mutate

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/ostiary/ostiary/internal/cli/output"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func run(t *testing.T, stdin string, args ...string) (out, errOut string, err error) {
	t.Helper()
	streams, in, stdout, stderr := genericiooptions.NewTestIOStreams()
	in.WriteString(stdin)
	c := NewCommand(&output.Options{IOStreams: streams})
	c.SetArgs(args)
	c.SilenceErrors, c.SilenceUsage = true, true
	err = c.ExecuteContext(t.Context())
	return stdout.String(), stderr.String(), err
}

// TestGolden prints, in each format, only what mutations change. It names what has no result.
func TestGolden(t *testing.T) {
	formats := map[string][]string{
		"yaml": {"-o", "yaml"}, "json": {"-o", "json"}, "patch": {"-o", "patch"}, "diff": {"-o", "diff"}, "create": {"--create"},
	}
	for format, args := range formats {
		t.Run(format, func(t *testing.T) {
			out, errOut, err := run(t, "", append([]string{"-f", "testdata/policies.yaml", "-f", "testdata/objects.yaml"}, args...)...)
			if got := output.Status(err); got != output.StatusError { // an object is skipped
				t.Errorf("status %d (%v), want %d", got, err, output.StatusError)
			}
			got := fmt.Sprintf("%s--- stderr ---\n%s%v\n", out, errOut, err)
			path := filepath.Join("testdata", "golden", format+".txt")
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("output (-want +got):\n%s", diff)
			}
		})
	}
	if golden, _ := filepath.Glob("testdata/golden/*.txt"); len(golden) != len(formats) {
		t.Errorf("%d golden files for %d formats", len(golden), len(formats))
	}
}

func TestArguments(t *testing.T) {
	policies, err := os.ReadFile("testdata/policies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"a resource without a cluster": {
			args: []string{"deployments", "-f", "-"},
			want: "the resource deployments needs --from-cluster; name files with -f",
		},
		"no object": {
			args: []string{"-f", "-"},
			want: "there is no object to evaluate: name its file with -f, or its resource, such as deployments, with --from-cluster",
		},
		"an unknown format": {
			args: []string{"-f", "-", "-o", "table"},
			want: `invalid argument "table" for "-o, --output" flag: must be one of yaml, json, patch, diff`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := run(t, string(policies), tt.args...); err == nil || err.Error() != tt.want {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
}

// TestManyObjects has a result for each of more objects than are evaluated together, in their order.
func TestManyObjects(t *testing.T) {
	var objects bytes.Buffer
	var want []string
	for i := range 2*batchSize + 7 {
		fmt.Fprintf(&objects, "---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: c-%d, namespace: shop}}\n", i)
		want = append(want, fmt.Sprintf("  name: c-%d", i))
	}
	out, errOut, err := run(t, objects.String(), "-f", "testdata/policies.yaml", "-f", "-")
	if err != nil || errOut != "1007 objects, 5 policies: 1007 objects changed, 0 errors\n" {
		t.Fatalf("got %v\n%s", err, errOut)
	}
	var got []string
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "  name: ") {
			got = append(got, strings.TrimSuffix(line, "\n"))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

// TestLeftOut says for how many objects a policy is not evaluated.
func TestLeftOut(t *testing.T) {
	const rules = "matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], resources: [configmaps], operations: [UPDATE]}]}"
	const head = "{apiVersion: admission.ostiary.dev/v1alpha1, kind: WebhookPolicy, metadata: {name: p}, spec: {" + rules + ", "
	const object = "}}\n---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: shop}}\n"
	for name, tt := range map[string]struct{ spec, want string }{
		"a backend": {
			spec: "backend: {type: Mutating, url: 'https://example.com', admissionReviewVersions: [v1], sideEffects: None}",
			want: "; for 1 object, policies with a backend were left out, because only API servers call it\n",
		},
		"a check of the authorizer": {
			spec: "mutations: [{patchType: JSONPatch, jsonPatch: {expression: " +
				"'authorizer.group(\"\").resource(\"pods\").check(\"get\").allowed() ? [JSONPatch{op: \"remove\", path: \"/data\"}] : []'}}]",
			want: "; for 1 object, policies that ask the authorizer were left out: use --from-cluster\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			out, errOut, err := run(t, head+tt.spec+object, "-f", "-")
			if want := "1 object, 1 policy: 0 objects changed, 0 errors" + tt.want; err != nil || out != "" || errOut != want {
				t.Errorf("got %v, %q\n%swant %s", err, out, errOut, want)
			}
		})
	}
}
