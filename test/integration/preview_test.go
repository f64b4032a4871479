package integration

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

const previewedPolicy = `{apiVersion: admission.ostiary.dev/v1alpha1, kind: WebhookPolicy, metadata: {name: previewed}, spec: {
  matchConstraints: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAMESPACE}},
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE, UPDATE]}]},
  matchConditions: [{name: ours, expression: 'object.metadata.name.startsWith("ours")'}],
  mutations: [{patchType: ApplyConfiguration,
    applyConfiguration: {expression: 'Object{metadata: Object.metadata{labels: {"team": "shop"}}}'}}],
  bindings: [{name: all, mutationAction: ACTION, validationActions: [Warn]}]}}`

// TestPreviewedMutation: a preview warns, is logged and counted, and changes nothing until its action
// becomes Apply, when the object is changed as previewed. The audit counts stored objects in both cases.
func TestPreviewedMutation(t *testing.T) {
	c := install(t)
	m := c.audited(t, "--report-violations=log")
	m.awaitReady(t)
	namespace := c.namespace(t, nil)
	apply := func(action v1alpha1.MutationAction) {
		t.Helper()
		c.applied(t, strings.NewReplacer("NAMESPACE", namespace, "ACTION", string(action)).Replace(previewedPolicy))
		c.awaitReady(t, "previewed")
	}
	const warning = "WebhookPolicy 'previewed' with binding 'all' would change the object: add /metadata/labels"
	manifest := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"ours","namespace":"` + namespace + `"}}`
	dryRun := func() string {
		_, errOut, _ := c.kubectl(t.Context(), manifest, "create", "--dry-run=server", "-f", "-")
		return errOut
	}
	must(t, c.Create(t.Context(), configMap(namespace, good))) // that is not ours
	older := configMap(namespace, good)
	older.Name = "ours-older"
	must(t, c.Create(t.Context(), older))
	apply(v1alpha1.MutationActionPreview)
	await(t).Eventually(dryRun).Should(ContainSubstring(warning))
	if _, errOut, err := c.kubectl(t.Context(), manifest, "create", "-f", "-"); err != nil {
		t.Fatalf("kubectl create: %v: %s", err, errOut)
	}
	stored := configMap(namespace, good)
	stored.Name = "ours"
	must(t, c.Get(t.Context(), client.ObjectKeyFromObject(stored), stored))
	if diff := cmp.Diff(map[string]string(nil), stored.Labels); diff != "" {
		t.Errorf("labels after a preview (-want +got):\n%s", diff)
	}
	await(t).Eventually(m.output).Should(SatisfyAll(ContainSubstring(`"decision":"preview"`), Not(ContainSubstring(`"value":"shop"`)),
		ContainSubstring("the mutations would change the object: add /metadata/labels")))
	audited := func() *int64 {
		p, err := c.policy(t.Context(), "previewed")
		if err != nil || p.Status.Audit == nil || p.Status.ObservedGeneration != p.Generation {
			return nil
		}
		return p.Status.Audit.WouldChange
	}
	await(t).Eventually(audited, time.Minute).Should(Equal(ptr.To[int64](1)))

	apply(v1alpha1.MutationActionApply)
	await(t).Eventually(dryRun).ShouldNot(ContainSubstring(warning))
	await(t).Eventually(func() map[string]string {
		changed := configMap(namespace, good)
		changed.Name = "ours-too"
		must(t, c.Create(t.Context(), changed, client.DryRunAll))
		return changed.Labels
	}).Should(HaveKeyWithValue("team", "shop"))
	await(t).Eventually(audited, time.Minute).Should(Equal(ptr.To[int64](2)))
}
