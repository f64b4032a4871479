package exempt

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

const (
	onPods      = "matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}\n"
	onTemplates = onPods + "podTemplates: {}\n"
	onAll       = "matchConstraints: {resourceRules: [{apiGroups: ['*'], apiVersions: ['*'], operations: [CREATE], resources: ['*']}]}\n"
)

// TestManifest shows the exceptions for objects of several kinds.
func TestManifest(t *testing.T) {
	const head = "apiVersion: admission.ostiary.dev/v1alpha1\nkind: WebhookPolicyException\n" +
		"metadata:\n  name: p-%s\n  namespace: shop\nspec:\n  match:\n"
	const tail = "  policyName: p\n  reason: r\n  validations:\n  - has-team\n"
	named := func(group, resource string) string {
		return "  - group: " + group + "\n    names:\n    - web\n    resources:\n    - " + resource + "\n"
	}
	const pods = "  - group: \"\"\n    objectSelector:\n      matchLabels:\n        app: web\n    resources:\n    - pods\n"
	tests := map[string]struct {
		object, group, resource, policy string
		want                            string
	}{
		"a workload": {
			object: "{kind: Deployment, metadata: {name: web, namespace: shop}, spec: {template: {metadata: {labels: {app: web}}}}}",
			group:  "apps", resource: "deployments", policy: onTemplates,
			want: strings.Replace(head, "%s", "deployment-web", 1) + named("apps", "deployments") + pods + tail,
		},
		"a workload of a policy for Pods": {
			object: "{kind: Deployment, metadata: {name: web, namespace: shop}, spec: {template: {metadata: {labels: {app: web}}}}}",
			group:  "apps", resource: "deployments", policy: onPods,
			want: strings.Replace(head, "%s", "deployment-web", 1) + pods + tail,
		},
		"a CronJob": {
			object: "{kind: CronJob, metadata: {name: web, namespace: shop}, " +
				"spec: {jobTemplate: {spec: {template: {metadata: {labels: {app: web}}}}}}}",
			group: "batch", resource: "cronjobs", policy: onAll,
			want: strings.Replace(head, "%s", "cronjob-web", 1) + named("batch", "cronjobs") + pods + tail,
		},
		"a Pod": {
			object: "{kind: Pod, metadata: {name: web, namespace: shop, labels: {app: web}}, spec: {}}", resource: "pods", policy: onPods,
			want: strings.Replace(head, "%s", "pod-web", 1) + named(`""`, "pods") + tail,
		},
		"a template without labels": {
			object: "{kind: Deployment, metadata: {name: web, namespace: shop}, spec: {template: {spec: {}}}}",
			group:  "apps", resource: "deployments", policy: onAll,
			want: strings.Replace(head, "%s", "deployment-web", 1) + named("apps", "deployments") + tail,
		},
		"a Namespace": {
			object: "{kind: Namespace, metadata: {name: web}}", resource: "namespaces", policy: onAll,
			want: "apiVersion: admission.ostiary.dev/v1alpha1\nkind: ClusterWebhookPolicyException\n" +
				"metadata:\n  name: p-namespace-web\nspec:\n  match:\n" +
				named(`""`, "namespaces") + tail,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			u, spec := &unstructured.Unstructured{}, &v1alpha1.WebhookPolicySpec{}
			if err := yaml.Unmarshal([]byte(tt.object), &u.Object); err != nil {
				t.Fatal(err)
			}
			if err := yaml.UnmarshalStrict([]byte(tt.policy), spec); err != nil {
				t.Fatal(err)
			}
			of := target{Unstructured: u, resource: schema.GroupResource{Group: tt.group, Resource: tt.resource}}
			got, err := manifest(of.exception(terms{policy: "p", spec: spec, validations: []string{"has-team"}, reason: "r"}))
			if err != nil {
				t.Fatal(err)
			}
			text, err := yaml.Marshal(got.Object)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, string(text)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestNames(t *testing.T) {
	long := strings.Repeat("a", 250)
	for _, tt := range []struct{ name, want string }{
		{"web", "p-pod-web"}, {"system:node", "p-pod-system-node-"}, {"System-node", "p-pod-ystem-node-"}, {long, "p-pod-" + long[:200]},
	} {
		got := nameOf("p", "pod", tt.name)
		if !strings.HasPrefix(strings.ReplaceAll(got, "pod--", "pod-"), tt.want) || len(got) > maxName || got == nameOf("p", "pod", tt.name+"b") {
			t.Errorf("the name for %q is %q, want %q", tt.name, got, tt.want)
		}
	}
}
