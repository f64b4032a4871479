package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/ostiary/ostiary/internal/cli/replay"
	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/offline"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/test/controlplane"
	"github.com/ostiary/ostiary/test/controlplane/cptest"
)

const recorded = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: RequestResponse
  namespaces: [default]
  resources: [{resources: [configmaps]}]
`

const replayed = `apiVersion: admission.ostiary.dev/v1alpha1
kind: WebhookPolicy
metadata: {name: keep}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE, UPDATE, DELETE]}]
  validations:
  - {expression: "(request.operation == 'DELETE' ? request.name : object.metadata.name) != 'refused' || request.operation == 'UPDATE'"}
  - {expression: "request.operation != 'UPDATE' || object.data['key'] == 'good'", message: "the key is bad"}
`

// Requests in the audit log of a real API server are replayed with their results.
func TestReplayOfARealAuditLog(t *testing.T) {
	cp := cptest.Run(t, controlplane.Options{NoControllerManager: true, Audit: true, AuditPolicy: recorded})
	maps := kubernetes.NewForConfigOrDie(cp.Config()).CoreV1().ConfigMaps("default")
	for _, name := range []string{"allowed", "refused"} {
		_, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"key": "good"}}, metav1.CreateOptions{})
		must(t, err)
	}
	_, err := maps.Patch(t.Context(), "allowed", types.MergePatchType, []byte(`{"data":{"key":"bad"}}`), metav1.PatchOptions{})
	must(t, err)
	_, err = maps.Patch(t.Context(), "allowed", types.MergePatchType, []byte(`{"data":{"key":"good"}}`), metav1.PatchOptions{})
	must(t, err)
	must(t, maps.Delete(t.Context(), "refused", metav1.DeleteOptions{}))

	file := filepath.Join(t.TempDir(), "policy.yaml")
	must(t, os.WriteFile(file, []byte(replayed), 0o600))
	objects, err := load.Objects(t.Context(), []string{file}, load.Options{})
	must(t, err)
	in, err := offline.Sort(objects)
	must(t, err)
	apis, err := offline.NewAPIs(policy.LatestEngine, nil)
	must(t, err)
	engine, err := offline.NewEngine(in.Policies, policy.NewCompilerFor(policy.LatestEngine), apis)
	must(t, err)
	policies := &replay.Policies{Engine: engine, World: offline.NewWorld(apis, nil, nil, offline.Answers(nil))}
	got, err := replay.Replay(t.Context(), []string{cp.AuditLog(0)}, nil, policies, nil, nil)
	must(t, err)
	t.Logf("%d events, skipped %v, rows %+v", got.Events, got.Skipped, got.Rows)
	want := map[string]map[string]int{"keep": {"allow": 2, "deny": 2}}
	skipped := map[string]int{"deletions of which the log does not have the object": 1}
	if diff := cmp.Diff(want, got.Decisions) + cmp.Diff(skipped, got.Skipped); diff != "" || got.Requests != 4 {
		t.Errorf("%d requests, want 4; (-want +got):\n%s", got.Requests, diff)
	}
}
