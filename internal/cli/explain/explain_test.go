package explain

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/cli/output"
	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/offline"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/test/clitest"
)

func run(t testing.TB, stdin string, args ...string) (out, errOut string, err error) {
	t.Helper()
	return clitest.Run(t, NewCommand, stdin, args...)
}

const (
	samples  = "../../../config/samples/"
	examples = "../testdata/examples/"
)

// TestDenial finds the validation of a message in files, and without them what the text says.
func TestDenial(t *testing.T) {
	const message = "admission webhook \"validate.ostiary.dev\" denied the request: WebhookPolicy 'require-team-label' with binding 'prod' denied request: " +
		"add the label team, with the name of the team that looks after this workload (see https://wiki.example.com/team)"
	const head = "require-team-label, binding prod\n  message: add the label team, with the name of the team that looks after this workload\n" +
		"  help: https://wiki.example.com/team\n"
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	for name, tt := range map[string]struct {
		args          []string
		want, wantErr string
	}{
		"the text alone":     {args: []string{"--denial", message}, want: head},
		"with the policy":    {args: []string{"--denial", message, "-f", samples + "01-require-team-label.yaml"}, want: head + "  spec.validations[0]: "},
		"no denial":          {args: []string{"--denial", "connection refused"}, wantErr: "the text has no denial or warning of a WebhookPolicy"},
		"with another input": {args: []string{"--denial", message, "--object", "a.yaml"}, wantErr: "--denial explains a message"},
	} {
		t.Run(name, func(t *testing.T) {
			got, _, err := run(t, "", tt.args...)
			if !strings.HasPrefix(got, tt.want) || (got == "") != (tt.want == "") {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if (err == nil) != (tt.wantErr == "") || err != nil && !strings.HasPrefix(err.Error(), tt.wantErr) {
				t.Errorf("error %v, want %q", err, tt.wantErr)
			}
		})
	}
}

// TestValidationsOfDenial: the names of validations, the paths of pod templates, errors and warnings are
// in messages too.
func TestValidationsOfDenial(t *testing.T) {
	const loop = "object.spec.containers.all(c,\n  c.image != 'a')"
	spec := &v1alpha1.WebhookPolicySpec{
		MatchConditions: []admissionregistrationv1.MatchCondition{{Name: "c", Expression: "object.spec.x"}},
		Validations: []v1alpha1.Validation{
			{Name: "team", Expression: "has(object.metadata.labels.team)", Message: "add the label team"},
			{Expression: "object.spec.replicas > 1", Message: "two replicas"},
			{Expression: "object.spec.y", MessageExpression: "'no ' + string(object.spec.y)"},
			{Expression: loop},
			{Name: "team-size", Expression: "object.spec.z", MessageExpression: "'z'"},
		},
	}
	const denied = "admission webhook \"v\" denied the request: WebhookPolicy 'p' denied request: "
	const warned = "Warning: Validation failed for WebhookPolicy 'p' with binding 'b': "
	validation := func(i int) []string { return []string{fmt.Sprintf("spec.validations[%d]", i)} }
	noKey := func(expression string) string {
		return denied + "expression '" + expression + "' resulted in error: no such key"
	}
	for name, tt := range map[string]struct {
		text string
		want []string
	}{
		"a name":                         {denied + "team: add the label team", validation(0)},
		"a name and a template":          {denied + "team at spec.template: add the label team", validation(0)},
		"a name and a computed message":  {denied + "team-size: z", validation(4)},
		"no name":                        {denied + "two replicas", validation(1)},
		"a template":                     {denied + "spec.template: two replicas", validation(1)},
		"an error":                       {noKey("object.spec.y"), validation(2)},
		"an error of several lines":      {noKey(loop), validation(3)},
		"an expression of several lines": {denied + "failed expression: " + loop, validation(3)},
		"an error of a match condition":  {noKey("object.spec.x"), []string{"spec.matchConditions[0]"}},
		"a computed message":             {denied + "no 5", validation(2)},
		"an error of a binding":          {denied + "failed to configure binding: no params found", nil},
		"an error of a mutation":         {denied + "spec.mutations[0]: the result has no kind", nil},
		"a warning":                      {warned + "two replicas (see https://a.b/c) (Deployment shop/web)", validation(1)},
		"a warning with a name":          {warned + "team: add the label team (Deployment shop/web)", validation(0)},
	} {
		t.Run(name, func(t *testing.T) {
			denials := denialsIn(tt.text)
			if len(denials) != 1 {
				t.Fatalf("%d denials", len(denials))
			}
			d := denials[0]
			d.add(spec)
			var got []string
			for _, v := range d.Validations {
				got = append(got, v.Field)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("validations (-want +got):\n%s", diff)
			}
			isWarning := strings.HasPrefix(tt.text, "Warning")
			if d.Warning != isWarning || (d.Object == "Deployment shop/web") != isWarning {
				t.Errorf("warning %v about %q", d.Warning, d.Object)
			}
		})
	}
}

// TestPodRequest makes the Pod of a workload's template.
func TestPodRequest(t *testing.T) {
	apis, err := offline.NewAPIs(policy.LatestEngine, nil)
	if err != nil {
		t.Fatal(err)
	}
	const template = `{"metadata": {"labels": {"app": "web"}, "name": "ignored"}, "spec": {"containers": [{"name": "c"}]}}`
	for name, tt := range map[string]struct{ object, wantUser string }{
		"Deployment": {`{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"}, "spec": {"template": ` + template + "}}", "replicaset-controller"},
		"CronJob":    {`{"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "web", "namespace": "shop"}, "spec": {"jobTemplate": {"spec": {"template": ` + template + "}}}}", "job-controller"},
		"ConfigMap":  {object: `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web", "namespace": "shop"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			object, err := load.FromJSON("object", []byte(tt.object))
			if err != nil {
				t.Fatal(err)
			}
			request, err := podRequest(object, apis)
			if err != nil || (request == nil) != (tt.wantUser == "") {
				t.Fatalf("got %v and %v", request, err)
			}
			if request == nil {
				return
			}
			const want = `{"apiVersion":"v1","kind":"Pod","metadata":{"generateName":"web-","labels":{"app":"web"},"namespace":"shop"},"spec":{"containers":[{"name":"c"}]}}`
			if got := string(request.Object.Raw); got != want || request.Namespace != "shop" {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			if got := request.UserInfo.Username; got != "system:serviceaccount:kube-system:"+tt.wantUser {
				t.Errorf("user %s, want %s", got, tt.wantUser)
			}
		})
	}
}

func TestGolden(t *testing.T) {
	tests := map[string][]string{
		"deny":      {"-f", samples + "01-require-team-label.yaml", "--object", examples + "pod.yaml"},
		"variables": {"warn-latest-image", "-f", samples + "02-warn-latest-image.yaml", "-f", samples + "01-require-team-label.yaml", "--object", examples + "pod.yaml"},
		"review":    {"-f", samples + "01-require-team-label.yaml", "--object", examples + "review.yaml"},
		"params":    {"-f", samples + "05-allowed-teams.yaml", "-f", "testdata/prod.yaml", "--object", "testdata/deployment.yaml"},
		"unmatched": {"-f", samples + "05-allowed-teams.yaml", "--object", examples + "pod.yaml"},
		"json":      {"-f", samples + "06-default-seccomp.yaml", "-f", "testdata/prod.yaml", "--object", examples + "pod.yaml", "-o", "json"},
		"cost": {
			"--cost", "-f", samples + "01-require-team-label.yaml", "-f", samples + "05-allowed-teams.yaml",
			"-f", samples + "06-default-seccomp.yaml",
		},
		"error": {"-f", samples + "10-protect-objects.yaml", "--object", "testdata/protected.yaml", "--delete"},
	}
	for name, args := range tests {
		t.Run(name, func(t *testing.T) {
			got, _, err := run(t, "", args...)
			if err != nil {
				t.Fatal(err)
			}
			clitest.Compare(t, filepath.Join("testdata", "golden", name+".txt"), got)
		})
	}
	if golden, _ := filepath.Glob("testdata/golden/*.txt"); len(golden) != len(tests) {
		t.Errorf("%d golden files for %d tests", len(golden), len(tests))
	}
}

// TestBlame checks which part of an expression is named as the one that made it false.
func TestBlame(t *testing.T) {
	const policy = "{apiVersion: admission.ostiary.dev/v1alpha1, kind: WebhookPolicy, metadata: {name: p}, spec: {matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], resources: [pods], operations: [CREATE]}]}, validations: [{expression: '%s'}]}}"
	tests := map[string]struct{ expression, want string }{
		"a comparison":    {`object.metadata.name == "x"`, `object.metadata.name == "x" is false, with object.metadata.name = "web"`},
		"and":             {`object.metadata.name == "web" && object.metadata.namespace == "x"`, `object.metadata.namespace == "x" is false, with object.metadata.namespace = "shop"`},
		"or":              {`object.metadata.name == "x" || object.metadata.name == "y"`, `object.metadata.name == "x" is false, with object.metadata.name = "web"; object.metadata.name == "y" is false, with object.metadata.name = "web"`},
		"not":             {`!(object.metadata.name == "web")`, `!(object.metadata.name == "web") is false, with object.metadata.name == "web" = true, object.metadata.name = "web"`},
		"nested":          {`true && (false || (object.kind == "Pod" && object.metadata.name == "x"))`, `object.metadata.name == "x" is false, with object.metadata.name = "web"`},
		"a choice":        {`object.kind == "Pod" ? object.metadata.name == "x" : true`, `object.metadata.name == "x" is false, with object.metadata.name = "web"`},
		"an element":      {`object.spec.containers.all(c, c.image.contains(":"))`, `object.spec.containers.all(c, c.image.contains(":")) is false, with object.spec.containers = [{"image":"nginx","name":"a"}], c.image.contains(":") = false, c.image = "nginx"; c.image.contains(":") is false, with c.image = "nginx"`},
		"no element":      {`object.spec.containers.exists(c, c.image == "x")`, `object.spec.containers.exists(c, c.image == "x") is false, with object.spec.containers = [{"image":"nginx","name":"a"}], c.image == "x" = false, c.image = "nginx"`},
		"a missing field": {`has(object.metadata.labels)`, `has(object.metadata.labels) is false`},
		"an error":        {`object.spec.x == 1`, "error: no such key: x"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			out, _, err := run(t, fmt.Sprintf(policy, tt.expression), "-f", "-", "--object", examples+"pod.yaml")
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for line := range strings.Lines(out) {
				if text, ok := strings.CutPrefix(strings.TrimSpace(line), "because spec.validations[0].expression: "); ok {
					got = append(got, text)
				}
			}
			if strings.Join(got, "; ") != tt.want {
				t.Errorf("got  %s\nwant %s", strings.Join(got, "; "), tt.want)
			}
		})
	}
}

func TestInvalidArguments(t *testing.T) {
	tests := map[string]struct {
		args []string
		want string
	}{
		"an unknown policy": {[]string{"require-team", "-f", samples + "01-require-team-label.yaml", "--object", examples + "pod.yaml"}, `there is no policy "require-team": correct its name, or name its file with -f`},
		"a typo":            {[]string{"require-team-labels", "-f", samples + "01-require-team-label.yaml", "--object", examples + "pod.yaml"}, `there is no policy "require-team-labels", did you mean "require-team-label"?`},
		"several objects":   {[]string{"-f", samples + "01-require-team-label.yaml", "--object", examples + "pods.yaml"}, examples + "pods.yaml: want one object, got 2"},
		"no object":         {[]string{"-f", samples + "01-require-team-label.yaml"}, "there is no object to explain: name a file with --object, or an object of the cluster as TYPE/NAME"},
		"no source":         {[]string{"--object", examples + "pod.yaml"}, "no policy is given: name its file with -f, or read those of a cluster with --from-cluster"},
		"an unused flag":    {[]string{"--object", examples + "pod.yaml", "-f", samples + "01-require-team-label.yaml", "--context", "a"}, "--context needs --from-cluster"},
		"no policy":         {[]string{"-f", examples + "pod.yaml", "--object", examples + "pod.yaml"}, examples + "pod.yaml: there is no WebhookPolicy: name its file with -f"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, _, err := run(t, "", tt.args...)
			if output.Status(err) != output.StatusError || err.Error() != tt.want {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
}

// FuzzReview checks that every object or AdmissionReview gives an explanation or an error.
func FuzzReview(f *testing.F) {
	for _, name := range []string{"review.yaml", "pod.yaml"} {
		text, err := os.ReadFile(examples + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Add(`{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"operation": "DELETE", "resource": {"version": "v1", "resource": "pods"}, "object": 1}}`)
	f.Fuzz(func(t *testing.T, text string) {
		out, _, err := run(t, text, "-f", samples+"01-require-team-label.yaml", "--object", "-")
		if (err == nil) == (out == "") || err != nil && err.Error() == "" {
			t.Errorf("%q, %v", out, err)
		}
	})
}
