package evaluate

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/ostiary/ostiary/internal/cli/output"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func run(t testing.TB, stdin string, args ...string) (out, errOut string, err error) {
	t.Helper()
	streams, in, stdout, stderr := genericiooptions.NewTestIOStreams()
	in.WriteString(stdin)
	c := NewCommand(&output.Options{IOStreams: streams})
	c.SetArgs(args)
	c.SetOut(stdout)
	c.SetErr(stderr)
	c.SilenceErrors, c.SilenceUsage = true, true
	err = c.ExecuteContext(t.Context())
	return stdout.String(), stderr.String(), err
}

func TestGolden(t *testing.T) {
	tests := map[string]struct {
		args       []string
		wantStatus int
	}{
		"create": {
			args:       []string{"-f", "testdata/policies.yaml", "-f", "testdata/objects.yaml"},
			wantStatus: output.StatusFindings,
		},
		"all": {
			args:       []string{"-f", "testdata/policies.yaml", "-f", "testdata/objects.yaml", "--all"},
			wantStatus: output.StatusFindings,
		},
		"update": {
			args:       []string{"-f", "testdata/policies.yaml", "-f", "testdata/objects.yaml", "--old", "testdata/old.yaml"},
			wantStatus: output.StatusFindings,
		},
		"delete": {
			args:       []string{"-f", "testdata/policies.yaml", "-f", "testdata/objects.yaml", "--delete"},
			wantStatus: output.StatusOK,
		},
		"json": {
			args:       []string{"-f", "testdata/policies.yaml", "-f", "testdata/objects.yaml", "-o", "json"},
			wantStatus: output.StatusFindings,
		},
		"summary": {
			args:       []string{"-f", "testdata/policies.yaml", "-f", "testdata/objects.yaml", "--summary"},
			wantStatus: output.StatusFindings,
		},
		"yaml": {
			args:       []string{"-f", "testdata/policies.yaml", "-f", "testdata/objects.yaml", "-o", "yaml"},
			wantStatus: output.StatusFindings,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			out, errOut, err := run(t, "", tt.args...)
			if got := output.Status(err); got != tt.wantStatus {
				t.Errorf("status %d (%v), want %d", got, err, tt.wantStatus)
			}
			compare(t, name, fmt.Sprintf("%s--- stderr ---\n%s%v\n", out, errOut, err))
		})
	}
	if golden, _ := filepath.Glob("testdata/golden/*.txt"); len(golden) != len(tests) {
		t.Errorf("%d golden files for %d tests", len(golden), len(tests))
	}
}

func compare(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "golden", name+".txt")
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
}

func TestInvalidInput(t *testing.T) {
	tests := map[string]struct {
		stdin, want string
	}{
		"no policy": {
			stdin: "{apiVersion: v1, kind: Pod, metadata: {name: a}}",
			want:  "-: there is no WebhookPolicy: name its file with -f",
		},
		"a kind of another case": {
			stdin: "{apiVersion: admission.ostiary.dev/v1alpha1, kind: WebhookPolicy, metadata: {name: p}, spec: " +
				"{matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], resources: [pods], operations: " +
				"[CREATE]}]}, validations: [{expression: 'true'}]}}\n---\n{apiVersion: v1, kind: pod}",
			want: "stdin:3:18: kind: the kind pod in v1 is not known, did you mean kind: Pod?",
		},
		"no object": {
			stdin: "{apiVersion: admission.ostiary.dev/v1alpha1, kind: WebhookPolicy, metadata: {name: p}, spec: " +
				"{matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], resources: [pods], operations: " +
				"[CREATE]}]}, validations: [{expression: 'true'}]}}",
			want: "there is no object to evaluate: name its file with -f",
		},
		"a faulty policy": {
			stdin: "{apiVersion: admission.ostiary.dev/v1alpha1, kind: WebhookPolicy, metadata: {name: p}, spec: {nothing: 1}}",
			want:  "stdin:1:95: spec.nothing: WebhookPolicy has no such field: correct or remove it",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, _, err := run(t, tt.stdin, "-f", "-")
			var findings *output.FindingsError
			if err == nil || errors.As(err, &findings) || err.Error() != tt.want {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
}

// TestLists evaluates the items of lists of any kind, and leaves out objects that no policy
// can match or whose kind is not known.
func TestLists(t *testing.T) {
	const policies = `apiVersion: admission.ostiary.dev/v1alpha1
kind: WebhookPolicyList
items:
- metadata: {name: team}
  spec:
    matchConstraints: {resourceRules: [{apiGroups: ["", apps], apiVersions: [v1], resources: [pods, deployments, configmaps], operations: [CREATE]}]}
    validations: [{expression: 'object.kind == "Pod" || "team" in object.metadata.?labels.orValue({})', message: add team}]
`
	for name, tt := range map[string]struct {
		objects    string
		wantOut    string
		wantErrOut string
		wantErr    string
	}{
		"items without kind": {
			objects: "{apiVersion: apps/v1, kind: DeploymentList, items: [{metadata: {name: a}}]}",
			wantOut: "Deployment a team deny",
			wantErr: "1 object, 1 policy: 1 object denied, 0 errors",
		},
		"the kind is readable": {
			objects:    "{apiVersion: v1, kind: PodList, items: [{metadata: {name: a}}]}",
			wantErrOut: "1 object, 1 policy: 0 objects denied, 0 errors\n",
		},
		"items of other kinds": {
			objects: "{apiVersion: apps/v1, kind: DeploymentList, items: [{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}]}",
			wantOut: "ConfigMap a team deny",
			wantErr: "1 object, 1 policy: 1 object denied, 0 errors",
		},
		"a list in a list": {
			objects: "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: " +
				"ConfigMap, metadata: {name: a}}]}]}",
			wantOut: "ConfigMap a team deny",
			wantErr: "1 object, 1 policy: 1 object denied, 0 errors",
		},
		"kinds without a match": {
			objects: "{apiVersion: x.y/v1, kind: Z, metadata: {name: z}}\n---\n" +
				"{apiVersion: extensions/v1beta1, kind: Deployment, metadata: {name: a}}",
			wantErrOut: "not evaluated, because no policy names their API groups: Z z, Deployment a\n" +
				"0 objects, 1 policy: 0 objects denied, 0 errors\n",
		},
		"a wrong version": {
			objects: "{apiVersion: apps/v1, kind: Pod, metadata: {name: a}}\n---\n" +
				"{apiVersion: v1, kind: ConfigMap, metadata: {name: b}}", wantOut: "ConfigMap b team deny",
			wantErrOut: "skipping stdin:1:23: kind: the kind Pod in apps/v1 is not known, did you mean apiVersion: v1?\n",
			wantErr:    "1 object, 1 policy: 1 object denied, 0 errors; the result is without what was skipped",
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "policies.yaml")
			if err := os.WriteFile(path, []byte(policies), 0o600); err != nil {
				t.Fatal(err)
			}
			out, errOut, err := run(t, tt.objects, "-f", path, "-f", "-")
			var rows []string
			for line := range strings.Lines(out) {
				if text := strings.Join(strings.Fields(line), " "); !strings.HasPrefix(text, "OBJECT ") {
					rows = append(rows, text)
				}
			}
			if got := strings.Join(rows, "\n"); !strings.HasPrefix(got, tt.wantOut) || (got == "") != (tt.wantOut == "") {
				t.Errorf("stdout %q, want %q", got, tt.wantOut)
			}
			if diff := cmp.Diff(tt.wantErrOut, errOut); diff != "" {
				t.Errorf("stderr (-want +got):\n%s", diff)
			}
			if (err == nil) != (tt.wantErr == "") || err != nil && err.Error() != tt.wantErr {
				t.Errorf("error %v, want %q", err, tt.wantErr)
			}
		})
	}
}

// TestActions has an audit finding with its message and in the totals, and as a denial.
func TestActions(t *testing.T) {
	const text = "{apiVersion: admission.ostiary.dev/v1alpha1, kind: WebhookPolicy, metadata: {name: p}, spec: " +
		"{matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], resources: [pods], operations: [CREATE]}]}, " +
		"validations: [{expression: 'false', message: noted}], bindings: [{name: b, validationActions: [Audit]}]}}\n---\n" +
		"{apiVersion: v1, kind: Pod, metadata: {name: a}}\n"
	out, errOut, err := run(t, text, "-f", "-")
	if err != nil || !strings.Contains(out, "Pod a    p        audit      audited: noted") ||
		errOut != "1 object, 1 policy: 0 objects denied, 0 errors, 1 audit finding\n" {
		t.Errorf("got %v\n%s%s", err, out, errOut)
	}
	out, _, err = run(t, text, "-f", "-", "--as-action", "Deny")
	if output.Status(err) != output.StatusFindings || !strings.Contains(out, "denied request: noted") {
		t.Errorf("as Deny: got %v\n%s", err, out)
	}
	if _, _, err := run(t, text, "-f", "-", "--as-action", "deny"); output.Status(err) != output.StatusError {
		t.Errorf("an unknown action: got %v, want an error", err)
	}
}

// TestChecksOfTheAuthorizer has no finding of a policy that asks the authorizer, and the findings of others.
func TestChecksOfTheAuthorizer(t *testing.T) {
	library, err := os.ReadFile("../../../library/tenancy/quota-changes/policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const quota = "---\n{apiVersion: v1, kind: ResourceQuota, metadata: {name: q, namespace: shop}, spec: {hard: {pods: '9'}}}\n"
	const other = `---
apiVersion: admission.ostiary.dev/v1alpha1
kind: WebhookPolicy
metadata: {name: no-quotas}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [resourcequotas], operations: [CREATE]}]}
  validations: [{expression: 'false', message: no quotas}]
`
	out, errOut, err := run(t, string(library)+quota, "-f", "-", "--as-action", "Deny")
	const want = `ResourceQuota shop/q   quota-changes   not evaluated   no answer is given for the check {user: "developer", ` +
		`verb: "manage", group: "library.ostiary.dev", resource: "quotas", namespace: "shop"}; ask a cluster with --from-cluster`
	if err != nil || !strings.Contains(out, want) {
		t.Errorf("got %v\n%s, want %s", err, out, want)
	}
	if want := "1 object, 1 policy: 0 objects denied, 0 errors, 1 not evaluated\n"; errOut != want {
		t.Errorf("stderr %q, want %q", errOut, want)
	}
	out, _, err = run(t, string(library)+quota+other, "-f", "-", "--as-action", "Deny")
	if want := "1 object, 2 policies: 1 object denied, 0 errors, 1 not evaluated"; err == nil || err.Error() != want {
		t.Errorf("with another policy: got %v, want %s", err, want)
	}
	if strings.Count(out, "quota-changes   not evaluated") != 1 || strings.Count(out, "no-quotas       deny") != 1 {
		t.Errorf("with another policy:\n%s", out)
	}
}

// many returns policies and objects.
func many(policies, objects int) string {
	var out bytes.Buffer
	for i := range policies {
		fmt.Fprintf(&out, `---
apiVersion: admission.ostiary.dev/v1alpha1
kind: WebhookPolicy
metadata: {name: p%03d}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}]
  matchConditions: [{name: c, expression: 'request.namespace != "exempt-%d"'}]
  variables: [{name: images, expression: 'object.spec.containers.map(c, c.image)'}]
  validations:
  - {expression: 'variables.images.all(i, !i.endsWith(":bad%d"))', messageExpression: '"image " + variables.images[0]'}
  - {expression: 'object.metadata.labels[?"team"].orValue("") != "team-%d"', message: team}
`, i, i, i, i)
	}
	for i := range objects {
		fmt.Fprintf(&out, "---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: pod-%d\n  namespace: ns-%d\n  labels:\n"+
			"    app: web\n    team: team-%d\nspec:\n  containers:\n  - name: a\n    image: example.com/web:%d\n"+
			"    resources:\n      limits: {cpu: '1', memory: 1Gi}\n  - name: b\n    image: example.com/side:1\n", i, i%20, i%500, i)
	}
	return out.String()
}

// TestManyObjects has generous limits, because it must not depend on the machine: the
// benchmark measures.
func TestManyObjects(t *testing.T) {
	out, _, err := run(t, many(20, 500), "-f", "-")
	if output.Status(err) != output.StatusFindings || strings.Count(out, "deny") != 20 {
		t.Errorf("%v\n%s", err, out)
	}
}

// BenchmarkEval evaluates 10,000 objects against 100 policies.
func BenchmarkEval(b *testing.B) {
	text := many(100, 10_000)
	b.ReportAllocs()
	for b.Loop() {
		var peak uint64
		done := make(chan struct{})
		go func() {
			var m runtime.MemStats
			for {
				select {
				case <-done:
					return
				case <-time.After(50 * time.Millisecond):
					runtime.ReadMemStats(&m)
					peak = max(peak, m.Sys-m.HeapReleased)
				}
			}
		}()
		if _, _, err := run(b, text, "-f", "-"); output.Status(err) != output.StatusFindings {
			b.Fatal(err)
		}
		close(done)
		b.ReportMetric(float64(peak)/(1<<20), "peak-MiB")
	}
}

// TestExceptions: exceptions of files have the effect that they have at a time.
func TestExceptions(t *testing.T) {
	const text = `apiVersion: admission.ostiary.dev/v1alpha1
kind: WebhookPolicy
metadata: {name: p}
spec:
  exceptions: {}
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  validations: [{name: has-team, expression: "has(object.metadata.labels)", message: no team}]
---
apiVersion: admission.ostiary.dev/v1alpha1
kind: WebhookPolicyException
metadata: {name: x}
spec: {policyName: p, validations: [has-team], match: [{group: "", resources: [pods]}], reason: r, expirationTime: "2027-03-01T00:00:00Z"}
---
{apiVersion: v1, kind: Pod, metadata: {name: web}}
`
	for name, tt := range map[string]struct {
		args       []string
		want       string
		wantStatus int
	}{
		"before the end": {
			args: []string{"--at", "2027-02-28T23:59:59Z"}, want: "excepted   excepted: p has-team by default/x", wantStatus: output.StatusOK,
		},
		"after the end": {args: []string{"--at", "2027-03-01T00:00:00Z"}, want: "deny", wantStatus: output.StatusFindings},
		"another namespace": {
			args: []string{"--at", "2027-02-28T23:59:59Z", "-n", "shop"}, want: "excepted: p has-team by shop/x", wantStatus: output.StatusOK,
		},
		"no time": {args: []string{"--at", "tomorrow"}, wantStatus: output.StatusError},
	} {
		t.Run(name, func(t *testing.T) {
			out, errOut, err := run(t, text, append(tt.args, "-f", "-")...)
			if got := output.Status(err); got != tt.wantStatus || !strings.Contains(out, tt.want) {
				t.Errorf("status %d (%v), want %d; output\n%s%s\nwant %s", got, err, tt.wantStatus, out, errOut, tt.want)
			}
		})
	}
}
