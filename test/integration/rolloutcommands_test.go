package integration

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/ostiary/ostiary/internal/cli"
	"github.com/ostiary/ostiary/internal/rollout"
)

// TestRolloutCommands moves a rollout whose steps last for an hour with each command. A replay of the
// annotation changes nothing.
func TestRolloutCommands(t *testing.T) {
	c := install(t)
	c.manager(t)
	t.Setenv("KUBECONFIG", plane.Kubeconfig())
	c.applied(t, `{apiVersion: admission.ostiary.dev/v1alpha1, kind: WebhookPolicy, metadata: {name: commanded}, spec: {
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}]},
  validations: [{expression: 'object.metadata.name != "probe"', message: no probes}],
  bindings: [{name: all, rollout: {steps: [{name: learn, validationActions: [Audit], minDurationSeconds: 3600},
    {name: warn, validationActions: [Warn], minDurationSeconds: 3600, maxViolations: 0}], final: {validationActions: [Deny]}}}]}}`)
	probe := func() string {
		_, errOut, _ := c.kubectl(t.Context(), "", "create", "configmap", "probe", "--dry-run=server")
		return errOut
	}
	run := func(want int, args ...string) string {
		t.Helper()
		streams, _, out, errOut := genericiooptions.NewTestIOStreams()
		if code := cli.Run(t.Context(), "test", append([]string{"rollout"}, args...), streams); code != want {
			t.Fatalf("%v: status %d: %s%s", args, code, out, errOut)
		}
		return out.String() + errOut.String()
	}
	annotation := func() string {
		p, err := c.policy(t.Context(), "commanded")
		must(t, err)
		return p.Annotations[rollout.Annotation]
	}
	await(t).Eventually(func() string {
		p, err := c.policy(t.Context(), "commanded")
		must(t, err)
		return p.Status.Actions
	}).Should(Equal("Audit 1/2"))
	expect := func(got, want string) {
		t.Helper()
		if !strings.Contains(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	expect(run(0, "status", "commanded"), "all       learn     Audit     all          60m        any          in effect for ")
	expect(run(0, "pause", "commanded"), "commanded, binding all: Audit 1/2, step learn, paused\n")
	expect(run(0, "status", "commanded", "-b", "all"), ", paused\n")
	expect(run(0, "resume", "commanded", "-b", "all"), "commanded, binding all: Audit 1/2, step learn\n")
	expect(run(0, "skip", "commanded"), "commanded, binding all: Warn 2/2, step warn\n")
	await(t).Eventually(probe).Should(ContainSubstring(
		"Warning: Validation failed for WebhookPolicy 'commanded' with binding 'all': no probes"))
	skipped := rollout.Annotation + "=" + annotation()
	expect(run(0, "complete", "commanded"), "commanded, binding all: Deny\n")
	await(t).Eventually(probe).Should(ContainSubstring("denied request: no probes"))
	expect(run(2, "skip", "commanded"), "each binding of the policy commanded has reached its final action: only restart changes it")
	expect(run(0, "restart", "commanded"), "commanded, binding all: Audit 1/2, step learn\n")
	await(t).Eventually(probe).Should(BeEmpty())

	if _, errOut, err := c.kubectl(t.Context(), "", "annotate", "--overwrite", "whp", "commanded", skipped); err != nil {
		t.Fatalf("kubectl annotate: %v: %s", err, errOut)
	}
	expect(run(0, "pause", "commanded"), "commanded, binding all: Audit 1/2, step learn, paused\n") // the leader has seen the replay
}
