package cli

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/dynamic"

	"github.com/ostiary/ostiary/internal/cli"
	"github.com/ostiary/ostiary/internal/cli/evaluate"
	"github.com/ostiary/ostiary/internal/cli/explain"
	"github.com/ostiary/ostiary/internal/cli/output"
	"github.com/ostiary/ostiary/internal/cli/version"
	"github.com/ostiary/ostiary/test/controlplane"
	"github.com/ostiary/ostiary/test/controlplane/cptest"
)

// TestCommandsWithCluster runs the commands that read policies and what these read from a
// cluster. testdata/cluster.yaml has its objects.
func TestCommandsWithCluster(t *testing.T) {
	cp := cptest.Run(t, controlplane.Options{NoControllerManager: true})
	p := planter{client: dynamic.NewForConfigOrDie(cp.Config()), variables: strings.NewReplacer("NOW", time.Now().Format(metav1.RFC3339Micro))}
	p.plant(t, p.read(t, "../../config/crd/bases/admission.ostiary.dev_webhookpolicies.yaml"))
	objects := p.read(t, "testdata/cluster.yaml")
	for _, u := range objects {
		NewWithT(t).Eventually(func() error { // until the API server serves the kind
			_, err := p.resource(u).Create(t.Context(), u, metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				return nil
			}
			return err
		}).WithTimeout(time.Minute).Should(Succeed())
	}
	t.Setenv("KUBECONFIG", cp.Kubeconfig())
	t.Run("eval", testEvalFromCluster)
	t.Run("explain", testExplainStored)
	t.Run("completion", testCompletion)
	t.Run("version", testVersion)
	t.Run("mutate", func(t *testing.T) { testMutate(t, p) })
	t.Run("status", testStatusWatch)
	t.Run("violations", func(t *testing.T) { testViolations(t, p) })
	p.rollOut(t)
	t.Run("examples", testExamples)
}

// ostiary runs a command.
func ostiary(t *testing.T, stdin string, args ...string) (status int, out, errOut string) {
	t.Helper()
	streams, in, stdout, stderr := genericiooptions.NewTestIOStreams()
	in.WriteString(stdin)
	status = cli.Run(t.Context(), "v1.2.3", args, streams)
	return status, stdout.String(), stderr.String()
}

const (
	// broken is what the commands write about the policy with that name.
	broken = "not evaluated, because Ostiary does not enforce it either: cluster:webhookpolicies/broken: " +
		"spec.validations[0].expression: broken: "

	podIn     = "{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: NS}, spec: {containers: [{name: a, image: a}]}}"
	nodePort  = "{apiVersion: v1, kind: Service, metadata: {name: a, namespace: shop}, spec: {type: NodePort, ports: [{port: 1}]}}"
	serviceOf = "{apiVersion: v1, kind: Service, metadata: {name: a, namespace: shop, labels: {team: TEAM}}, spec: {ports: [{port: 1}]}}"
)

func testEvalFromCluster(t *testing.T) {
	tests := map[string]struct {
		stdin string
		args  []string
		// want are the decisions by policy, and wantErrOut a part of the errors.
		want       map[string]string
		wantErrOut string
		wantChange string
		wantStatus int
	}{
		"the labels of the Namespace": {
			stdin:      strings.Replace(podIn, "NS", "shop", 1),
			want:       map[string]string{"require-team-label": "deny", "two-bindings": "warn"},
			wantErrOut: broken,
			wantStatus: output.StatusFindings,
		},
		"another Namespace":   {stdin: strings.Replace(podIn, "NS", "other", 1), wantErrOut: broken},
		"an exempt Namespace": {stdin: strings.Replace(podIn, "NS", "exempted", 1)},
		"a Namespace that does not exist": {
			stdin:      strings.Replace(podIn, "NS", "nowhere", 1),
			wantErrOut: `the cluster has no Namespace "nowhere": correct the name, or add the Namespace to the files`,
			wantStatus: output.StatusError,
		},
		"a Namespace of a file": {
			stdin: strings.Replace(podIn, "NS", "nowhere",
				1) + "\n---\n{apiVersion: v1, kind: Namespace, metadata: {name: nowhere, labels: {tier: prod}}}",
			want:       map[string]string{"require-team-label": "deny"},
			wantStatus: output.StatusFindings,
		},
		"the namespace of the flag": {
			stdin:      strings.Replace(podIn, ", namespace: NS", "", 1),
			args:       []string{"-n", "shop"},
			want:       map[string]string{"require-team-label": "deny", "two-bindings": "warn"},
			wantStatus: output.StatusFindings,
		},
		"a policy of a file": {
			stdin: strings.Replace(podIn, "NS", "shop",
				1) + "\n---\n{apiVersion: admission.ostiary.dev/v1alpha1, kind: WebhookPolicy, metadata: {name: " +
				"require-team-label}, spec: {matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], resources: " +
				"[pods], operations: [CREATE]}]}, validations: [{expression: 'true'}]}}",
			want: map[string]string{"two-bindings": "warn"},
		},
		"a param": {
			stdin:      strings.Replace(serviceOf, "TEAM", "ads", 1),
			want:       map[string]string{"allowed-teams": "deny"},
			wantStatus: output.StatusFindings,
		},
		"a value that the param allows": {stdin: strings.Replace(serviceOf, "TEAM", "web", 1)},
		"a param of a file": {
			stdin: strings.Replace(serviceOf, "TEAM", "ads",
				1) + "\n---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: teams, namespace: default}, data: {teams: ads}}",
		},
		"the user of the context": {stdin: nodePort, want: map[string]string{}},
		"a user without a permission": {
			stdin:      nodePort,
			args:       []string{"--user", "alice"},
			want:       map[string]string{"approved-ports": "deny"},
			wantStatus: output.StatusFindings,
		},
		"a user with a permission": {stdin: nodePort, args: []string{"--user", "bob"}},
		"the schema of a custom resource": {
			stdin:      "{apiVersion: example.com/v1, kind: Widget, metadata: {name: a, namespace: shop}, spec: {parts: [{name: x, size: 1}]}}",
			want:       map[string]string{"default-part": "mutate"},
			wantChange: `[{"name":"x","size":1},{"name":"default","size":2}]`,
		},
		"a flag without --from-cluster": {
			args:       []string{"--from-cluster=false", "--context", "a", "-f", "-"},
			wantErrOut: "error: --context needs --from-cluster\n",
			wantStatus: output.StatusError,
		},
		"a context that is not configured": {
			stdin:      nodePort,
			args:       []string{"--context", "missing"},
			wantErrOut: `error: reading the kubeconfig: context "missing" does not exist`,
			wantStatus: output.StatusError,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			status, out, errOut := ostiary(t, tt.stdin, append([]string{"eval", "--from-cluster", "-f", "-", "-o", "json"}, tt.args...)...)
			if status != tt.wantStatus || !strings.Contains(errOut, tt.wantErrOut) {
				t.Fatalf("status %d, want %d; stderr, want %q:\n%s%s", status, tt.wantStatus, tt.wantErrOut, errOut, out)
			}
			if status == output.StatusError {
				return
			}
			var got []evaluate.Evaluation
			must(t, json.Unmarshal([]byte(out), &got))
			decisions := map[string]string{}
			for _, e := range got {
				for _, d := range e.Decisions {
					decisions[d.Policy] = string(d.Decision)
				}
				if tt.wantChange != "" {
					var widget unstructured.Unstructured
					must(t, widget.UnmarshalJSON(e.Mutated))
					parts, err := json.Marshal(widget.Object["spec"].(map[string]any)["parts"])
					must(t, err)
					if diff := cmp.Diff(tt.wantChange, string(parts)); diff != "" {
						t.Errorf("parts (-want +got):\n%s", diff)
					}
				}
			}
			if tt.want == nil {
				tt.want = map[string]string{}
			}
			if diff := cmp.Diff(tt.want, decisions); diff != "" {
				t.Errorf("decisions (-want +got):\n%s", diff)
			}
		})
	}
}

// testExplainStored explains the Pod web-0, which every kind of reason excludes from a policy.
func testExplainStored(t *testing.T) {
	status, out, errOut := ostiary(t, "", "explain", "pod/web-0", "-n", "shop", "-o", "json")
	if status != output.StatusOK || !strings.Contains(errOut, broken) {
		t.Fatalf("status %d\n%s%s", status, out, errOut)
	}
	var got explain.Explanation
	must(t, json.Unmarshal([]byte(out), &got))
	lines := map[string]string{}
	for _, p := range got.Policies {
		line := p.Operation + " " + string(p.Decision)
		if p.Operation == "" {
			line += ": " + strings.Join(p.Why, "; ")
		}
		lines[p.Policy] = line
	}
	want := map[string]string{
		"require-team-label": "CREATE deny",
		"frozen-names":       "UPDATE allow",
		"keep-pods":          "DELETE deny",
		"no-latest":          "CREATE skip",
		"two-bindings":       "CREATE warn",
		"allowed-teams":      " unmatched: spec.matchConstraints.resourceRules do not match pods",
		"approved-ports":     " unmatched: spec.matchConstraints.resourceRules do not match pods",
		"default-part":       " unmatched: spec.matchConstraints.resourceRules do not match pods",
		"no-exec":            " unmatched: spec.matchConstraints.resourceRules do not match pods",
		"one-name":           " unmatched: spec.matchConstraints.resourceRules match only the names db-0",
		"other-namespaces": ` unmatched: spec.matchConstraints.namespaceSelector "tier=test" does not select the ` +
			`namespace shop with the labels "kubernetes.io/metadata.name=shop,tier=prod"`,
		"other-labels": ` unmatched: spec.matchConstraints.objectSelector "app=db" does not select the labels of the object`,
		"excluded":     " unmatched: spec.matchConstraints.excludeResourceRules match CREATE of pods",
		"no-binding": ` unmatched: spec.bindings[0].matchResources.namespaceSelector "tier=test" does not select the ` +
			`namespace shop with the labels "kubernetes.io/metadata.name=shop,tier=prod"`,
		"no-param": " unmatched: spec.bindings[0].paramRef finds no ConfigMap, and parameterNotFoundAction is Allow",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("policies (-want +got):\n%s", diff)
	}
	for name, tt := range map[string]struct {
		args       []string
		want       []string // parts of the output
		wantStatus int
	}{
		"a table": {
			args: []string{"pod/web-0", "-n", "shop"},
			want: []string{
				"Pod shop/web-0 as it is stored, by ", "require-team-label CREATE deny Deny: add the label team",
				"keep-pods DELETE deny",
			},
		},
		"a wide table": {
			args: []string{"pod/web-0", "-n", "shop", "-o", "wide"},
			want: []string{"POLICY OPERATION DECISION BINDINGS COST WHY", "require-team-label CREATE deny (default) "},
		},
		"one policy": {
			args: []string{"po/web-0", "require-team-label", "-n", "shop"},
			want: []string{
				"require-team-label on CREATE: deny",
				`because spec.validations[0].expression: has(object.metadata.labels.team) is false`,
			},
		},
		"deletion": {
			args: []string{"pods/web-0", "-n", "shop", "--delete", "--all"},
			want: []string{
				"require-team-label - unmatched spec.matchConstraints.resourceRules match CREATE and UPDATE of pods, not DELETE",
			},
		},
		"an exempt object": {
			args: []string{"pod/web-0", "-n", "exempted", "--all"},
			want: []string{"require-team-label - unmatched the namespace exempted is exempt from every policy"},
		},
		"a group": {
			args: []string{"widgets.v1.example.com/w", "-n", "shop"},
			want: []string{"Widget shop/w as it is stored", "default-part CREATE mutate"},
		},
		"a policy of -f": {
			args: []string{
				"pod/web-0", "require-team-label", "-n", "shop", "-f", "../../config/samples/02-warn-latest-image.yaml",
			},
			want: []string{"require-team-label on CREATE: deny"},
		},
		"no name": {
			args:       []string{"pod/"},
			want:       []string{`error: "pod/" is not an object: write TYPE/NAME, such as pod/web-0`},
			wantStatus: output.StatusError,
		},
		"no such object": {
			args:       []string{"pod/db-0", "-n", "shop"},
			want:       []string{`error: reading pod/db-0: pods "db-0" not found`},
			wantStatus: output.StatusError,
		},
		"no such resource": {
			args:       []string{"gadget/a"},
			want:       []string{`error: the API server has no resource "gadget": kubectl api-resources lists them`},
			wantStatus: output.StatusError,
		},
		"no such policy": {
			args:       []string{"pod/web-0", "require-team-labels", "-n", "shop"},
			want:       []string{`error: there is no policy "require-team-labels", did you mean "require-team-label"?`},
			wantStatus: output.StatusError,
		},
		"two objects": {
			args:       []string{"pod/web-0", "pod/db-0"},
			want:       []string{`error: "pod/web-0" and "pod/db-0" are two objects: name one`},
			wantStatus: output.StatusError,
		},
		"also a file": {
			args: []string{"pod/web-0", "--object", "a.yaml"},
			want: []string{
				`error: "pod/web-0" is an object of the cluster: remove --object, --old, --subresource and --resource`,
			},
			wantStatus: output.StatusError,
		},
		"an object of a file, with the policies of the cluster": {
			args: []string{"--from-cluster", "require-team-label", "--object", "testdata/pod.yaml"},
			want: []string{"CREATE Pod shop/a by ", "require-team-label: deny"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			status, out, errOut := ostiary(t, "", append([]string{"explain"}, tt.args...)...)
			if status != tt.wantStatus {
				t.Errorf("status %d, want %d", status, tt.wantStatus)
			}
			for _, want := range tt.want {
				if !strings.Contains(regexp.MustCompile(" +").ReplaceAllString(out+errOut, " "), want) {
					t.Errorf("the output lacks %q:\n%s%s", want, out, errOut)
				}
			}
		})
	}
}

// testCompletion completes the arguments of explain with what the cluster has.
func testCompletion(t *testing.T) {
	for arguments, want := range map[string]string{
		"explain pod/w -n shop":            "pod/web-0\n:4\n",
		"explain pod/x -n shop":            ":4\n",
		"explain require":                  "require-team-label\n:6\n",
		"explain configm":                  "configmaps/\n:6\n",
		"explain pod/web-0 -n shop requir": "require-team-label\n:4\n",
		"explain rockets/":                 ":4\n",
	} {
		words := strings.Fields(arguments)
		if i := len(words) - 1; words[i] == "shop" { // the word to complete comes last
			words = append(append(words[:1:1], words[2:]...), words[1])
		}
		status, out, errOut := ostiary(t, "", append([]string{"__complete"}, words...)...)
		if status != output.StatusOK || out != want {
			t.Errorf("%s is completed with %q, want %q\n%s", arguments, out, want, errOut)
		}
	}
}

func testVersion(t *testing.T) {
	status, out, errOut := ostiary(t, "", "version", "-o", "json")
	var got version.Info
	must(t, json.Unmarshal([]byte(out), &got))
	if status != output.StatusOK || errOut != "" {
		t.Errorf("status %d\n%s", status, errOut)
	}
	if got.Client != "v1.2.3" || got.Manager != "v1.2.2" || got.Namespace != "ostiary-system" || !strings.HasPrefix(got.Server, "v1.") {
		t.Errorf("got %+v", got)
	}
	minor := strings.Join(strings.Split(strings.TrimPrefix(got.Server, "v"), ".")[:2], ".")
	want := []string{
		"Kubernetes " + minor + " is supported",
		"kubectl-ostiary v1.2.3 and Ostiary v1.2.2 differ: they can decide differently; use equal versions",
	}
	if diff := cmp.Diff(want, got.Compatibility); diff != "" {
		t.Errorf("compatibility (-want +got):\n%s", diff)
	}
	if status, out, errOut := ostiary(t, "", "version", "--client"); status != output.StatusOK || errOut != "" ||
		strings.Contains(out, "API server") {
		t.Errorf("with --client: status %d\n%s%s", status, out, errOut)
	}
}

// rollOut gives the policy of the examples a rollout in its first step.
func (p planter) rollOut(t *testing.T) {
	t.Helper()
	u := p.parse(t, "{apiVersion: admission.ostiary.dev/v1alpha1, kind: WebhookPolicy, metadata: {name: require-team-label}}")[0]
	for _, change := range []struct {
		patch        string
		subresources []string
	}{
		{patch: `{"spec": {"bindings": [{"name": "everywhere", "rollout": {"final": {"validationActions": ["Deny"]},
			"steps": [{"name": "learn", "validationActions": ["Audit"], "minDurationSeconds": 3600}]}}]}}`},
		{patch: `{"status": {"bindings": [{"name": "everywhere", "step": "learn", "token": "a"}]}}`, subresources: []string{"status"}},
	} {
		_, err := p.resource(u).Patch(t.Context(), u.GetName(), types.MergePatchType, []byte(change.patch),
			metav1.PatchOptions{}, change.subresources...)
		must(t, err)
	}
}

// testExamples runs every example of the help of every command, those without a cluster too.
func testExamples(t *testing.T) {
	files, err := filepath.Abs("../../internal/cli/testdata/examples")
	must(t, err)
	var run func(c *cobra.Command)
	run = func(c *cobra.Command) {
		for line := range strings.Lines(c.Example) {
			t.Run(strings.TrimSpace(line), func(t *testing.T) {
				directory := t.TempDir()
				must(t, os.CopyFS(directory, os.DirFS(files)))
				t.Chdir(directory)
				status, out, errOut := ostiary(t, "", strings.Fields(line)[2:]...)
				if status == output.StatusError || out == "" {
					t.Errorf("status %d\n%s%s", status, out, errOut)
				}
			})
		}
		for _, sub := range c.Commands() {
			run(sub)
		}
	}
	run(cli.NewCommand("v1.2.3", genericiooptions.NewTestIOStreamsDiscard()))
}

// testStatusWatch shows the status until the context ends.
func testStatusWatch(t *testing.T) {
	out := &lockedBuffer{}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int)
	go func() {
		ended <- cli.Run(ctx, "v1.2.3", []string{"status", "--watch", "--interval", "1s"},
			genericiooptions.IOStreams{Out: out, ErrOut: io.Discard})
	}()
	NewWithT(t).Eventually(func() int {
		return strings.Count(out.String(),
			"Ostiary in ostiary-system: ")
	}).WithTimeout(time.Minute).Should(BeNumerically(">=", 3))
	cancel()
	if status := <-ended; status != output.StatusOK {
		t.Errorf("status %d after the end, want 0", status)
	}
}

// lockedBuffer is a buffer that a command writes while a test reads it.
type lockedBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer.
func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String returns what was written so far.
func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
