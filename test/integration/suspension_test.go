package integration

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/status"
	"github.com/ostiary/ostiary/internal/cli"
)

// TestSuspendedPolicy suspends a policy and resumes it with the commands, and lets a suspension end by itself. The spec
// stays as it is.
func TestSuspendedPolicy(t *testing.T) {
	c := install(t)
	c.reviewing(t, true)
	t.Setenv("KUBECONFIG", plane.Kubeconfig())
	const strict = `{apiVersion: admission.ostiary.dev/v1alpha1, kind: WebhookPolicy, metadata: {name: strict}, spec: {
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}]},
  validations: [{expression: 'object.metadata.name != "probe"', message: no probes}]}}`
	c.applied(t, strict)
	c.awaitReady(t, "strict")
	create := func() string {
		_, errOut, _ := c.kubectl(t.Context(), "", "create", "configmap", "probe", "--dry-run=server")
		return errOut
	}
	run := func(args ...string) string {
		t.Helper()
		streams, _, out, errOut := genericiooptions.NewTestIOStreams()
		if code := cli.Run(t.Context(), "test", args, streams); code != 0 {
			t.Fatalf("%v: %s%s", args, out, errOut)
		}
		return out.String()
	}
	ready := func() string {
		p, err := c.policy(t.Context(), "strict")
		must(t, err)
		if p.Generation != 1 {
			t.Fatalf("the spec has changed: generation %d", p.Generation)
		}
		is := condition(p, v1alpha1.ConditionReady)
		return string(is.Status) + " " + is.Reason
	}
	suspended := string(metav1.ConditionFalse) + " " + status.ReasonSuspended
	await(t).Eventually(create).Should(ContainSubstring("no probes"))

	want := "strict is suspended until " + time.Now().UTC().Format("2006-01-")
	if out := run("suspend", "strict", "--for", "1h"); !strings.HasPrefix(out, want) {
		t.Errorf("got %q", out)
	}
	await(t).Eventually(create).Should(BeEmpty())
	await(t).Eventually(ready).Should(Equal(suspended))

	run("resume", "strict")
	await(t).Eventually(create).Should(ContainSubstring("no probes"))
	await(t).Eventually(ready).Should(Equal("True " + status.ReasonEnforced))

	run("suspend", "strict", "--for", "5s")
	await(t).Eventually(create).Should(ContainSubstring("no probes"))
	await(t).Eventually(ready).Should(Equal("True " + status.ReasonEnforced))

	// A time that is written by hand has no effect before the longest suspension begins. The URL shows that it is loaded.
	until := time.Now().Add(v1alpha1.MaxSuspension + time.Hour).UTC().Format(time.RFC3339)
	_, errOut, err := c.kubectl(t.Context(), "", "annotate", "--overwrite", "whp", "strict", v1alpha1.AnnotationSuspendedUntil+"="+until,
		v1alpha1.AnnotationHelp+"=https://wiki.example.com/probes")
	if must(t, err); !strings.Contains(errOut, "the policy is not suspended before ") {
		t.Errorf("the warning is %q", errOut)
	}
	await(t).Eventually(create).Should(ContainSubstring("https://wiki.example.com/probes"))
}
