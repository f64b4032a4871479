package validation

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// discovered is a cluster with the kinds, names and verbs of a few resources as an API
// server serves them.
func discovered() ClusterInfo {
	all := []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
	namespaced := func(name, kind string, short []string, verbs ...string) metav1.APIResource {
		return metav1.APIResource{Name: name, SingularName: strings.ToLower(kind), Kind: kind, ShortNames: short, Namespaced: true, Verbs: verbs}
	}
	return ClusterInfo{Replicas: 2, Resources: map[schema.GroupVersion][]metav1.APIResource{
		{Version: "v1"}: {
			namespaced("pods", "Pod", []string{"po"}, all...),
			namespaced("pods/status", "Pod", nil, "get", "patch", "update"),
			namespaced("pods/exec", "PodExecOptions", nil, "create", "get"),
			namespaced("pods/eviction", "Eviction", nil, "create"),
			namespaced("configmaps", "ConfigMap", []string{"cm"}, all...),
			namespaced("componentstatuses", "ComponentStatus", []string{"cs"}, "get", "list"),
			{Name: "nodes", SingularName: "node", Kind: "Node", Verbs: all},
		},
		{Group: "apps", Version: "v1"}: {
			namespaced("deployments", "Deployment", []string{"deploy"}, all...),
			namespaced("deployments/scale", "Scale", nil, "get", "patch", "update"),
		},
		{Group: "example.com", Version: "v1"}: {
			namespaced("shells", "Shell", nil, all...), namespaced("shells/open", "Open", nil, "create"),
		},
		{Group: "down.example.com", Version: "v1"}: nil,
	}}
}

func TestUnmatched(t *testing.T) {
	const first, second = "spec.matchConstraints.resourceRules[0].resources[0]: ", "spec.matchConstraints.resourceRules[0].resources[1]: "
	rule := func(group, names, operations, more string) string {
		return fmt.Sprintf(`{apiGroups: [%q], apiVersions: [v1], resources: [%s], operations: [%s]%s}`, group, names, operations, more)
	}
	tests := map[string]struct {
		rule    string
		want    []string
		wantAll bool
	}{
		"matches":                      {rule: rule("", "pods", "CREATE", "")},
		"every operation":              {rule: rule("", "pods/exec", "'*'", "")},
		"CONNECT of a subresource":     {rule: rule("", "pods/exec", "CONNECT", "")},
		"CONNECT of an aggregated API": {rule: rule("example.com", "shells/open", "CONNECT", "")},
		"UPDATE of a status":           {rule: rule("", "pods/status", "UPDATE", "")},
		"a version that is down":       {rule: rule("down.example.com", "anything", "CREATE", "")},
		"a wildcard":                   {rule: rule("", "pods/*", "CREATE", "")},
		"CREATE of exec": {
			rule: rule("", "pods/exec", "CREATE", ""),
			want: []string{
				first + `no request matches: requests for "pods/exec" have only the operation CONNECT; add it to operations`,
			},
			wantAll: true,
		},
		"CREATE of a status": {
			rule: rule("", "pods/status", "CREATE", ""),
			want: []string{
				first + `no request matches: requests for "pods/status" have only the operation UPDATE; add it to operations`,
			},
			wantAll: true,
		},
		"CONNECT of pods": {
			rule: rule("", "pods", "CONNECT", ""),
			want: []string{
				first + `no request matches: requests for "pods" have only the operations CREATE, UPDATE and DELETE; add one of them to operations`,
			},
			wantAll: true,
		},
		"one of two": {
			rule: rule("", "pods, pods/exec", "CREATE", ""),
			want: []string{
				second + `no request matches: requests for "pods/exec" have only the operation CONNECT; add it to operations`,
			},
		},
		"what is only read": {
			rule:    rule("", "componentstatuses", "CREATE", ""),
			want:    []string{first + `no request matches: clients can only read "componentstatuses"`},
			wantAll: true,
		},
		"scope Cluster for pods": {
			rule:    rule("", "pods", "CREATE", ", scope: Cluster"),
			want:    []string{first + `no request matches: "pods" is namespaced, and the rule has scope Cluster; remove scope`},
			wantAll: true,
		},
		"scope Namespaced for nodes": {
			rule: rule("", "nodes", "CREATE", ", scope: Namespaced"),
			want: []string{
				first + `no request matches: "nodes" is cluster-scoped, and the rule has scope Namespaced; remove scope`,
			},
			wantAll: true,
		},
		"scope of pods": {rule: rule("", "pods", "CREATE", ", scope: Namespaced")},
		"in another group": {
			rule: rule("", "deployments", "CREATE", ""),
			want: []string{
				first + `the API server does not serve "deployments" in these groups and versions: it is in the group "apps"`,
			},
			wantAll: true,
		},
		"in the core group": {
			rule: rule("apps", "pods", "CREATE", ""),
			want: []string{
				first + `the API server does not serve "pods" in these groups and versions: it is in the core group ""`,
			},
			wantAll: true,
		},
		"singular": {
			rule:    rule("", "pod", "CREATE", ""),
			want:    []string{first + `the API server does not serve "pod" in these groups and versions, did you mean "pods"?`},
			wantAll: true,
		},
		"a kind": {
			rule: rule("", "ConfigMap", "CREATE", ""),
			want: []string{
				first + `the API server does not serve "ConfigMap" in these groups and versions, did you mean "configmaps"?`,
			},
			wantAll: true,
		},
		"a short name": {
			rule: rule("", "cm", "CREATE", ""),
			want: []string{
				first + `the API server does not serve "cm" in these groups and versions, did you mean "configmaps"?`,
			},
			wantAll: true,
		},
		"a slip": {
			rule: rule("", "configmpas", "CREATE", ""),
			want: []string{
				first + `the API server does not serve "configmpas" in these groups and versions, did you mean "configmaps"?`,
			},
			wantAll: true,
		},
		"a slip, in another group": {
			rule: rule("", "deploymnets", "CREATE", ""),
			want: []string{
				first + `the API server does not serve "deploymnets" in these groups and versions, did you mean "deployments" in the group "apps"?`,
			},
			wantAll: true,
		},
		"a kind, in another group": {
			rule: rule("", "Deployment", "CREATE", ""),
			want: []string{
				first + `the API server does not serve "Deployment" in these groups and versions, did you mean "deployments" in the group "apps"?`,
			},
			wantAll: true,
		},
		"the kind of a list": {rule: rule("apps", "DeploymentList", "CREATE", ""), want: []string{first +
			`the API server does not serve "DeploymentList" in these groups and versions: name "deployments", ` +
			`since requests contain the objects of a list, and never the list`}, wantAll: true},
		"a list as a resource": {rule: rule("apps", "deploymentlists", "CREATE", ""), want: []string{first +
			`the API server does not serve "deploymentlists" in these groups and versions: name "deployments", ` +
			`since requests contain the objects of a list, and never the list`}, wantAll: true},
		"a list of nothing": {rule: rule("apps", "rocketlists", "CREATE", ""), want: []string{first +
			`the API server does not serve "rocketlists" in these groups and versions: correct it, ` +
			`unless it is still to be installed`}, wantAll: true},
		"nothing similar": {
			rule: rule("", "rockets", "CREATE", ""),
			want: []string{
				first + `the API server does not serve "rockets" in these groups and versions: correct it, unless it is still to be installed`,
			},
			wantAll: true,
		},
		"an unknown group": {
			rule: rule("app", "deployments", "CREATE", ""),
			want: []string{
				`spec.matchConstraints.resourceRules[0].apiGroups[0]: the API server has no group "app", did you mean "apps"?`,
			},
			wantAll: true,
		},
		"a subresource that is unknown": {
			rule: rule("", "pods/evict", "CREATE", ""),
			want: []string{
				first + `the API server does not serve "pods/evict" in these groups and versions, did you mean "pods/eviction"?`,
			},
			wantAll: true,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := parse(t, matching(tt.rule, "failurePolicy: Ignore"))
			got, all := Unmatched(p, discovered())
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			if all != tt.wantAll {
				t.Errorf("all = %t, want %t", all, tt.wantAll)
			}
			if diff := cmp.Diff(got, Warnings(p, discovered())); diff != "" {
				t.Errorf("Warnings differ:\n%s", diff)
			}
			if _, all := Unmatched(p, ClusterInfo{}); all {
				t.Error("without knowledge of the resources, no request matches")
			}
		})
	}
}

// The rules of a plugin are none that the author of a policy wrote or could change.
func TestNoWarningsAboutRulesOfPlugins(t *testing.T) {
	pages, err := filepath.Glob("../../docs/plugins/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	shown := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range strings.Split(string(text), "\n```yaml\n")[1:] {
			block, _, _ := strings.Cut(part, "```\n")
			if !strings.Contains(block, "\nkind: WebhookPolicy\n") {
				continue
			}
			shown++
			p := &v1alpha1.WebhookPolicy{}
			if err := yaml.UnmarshalStrict([]byte(block), p); err != nil {
				t.Fatal(err)
			}
			t.Run(p.Name, func(t *testing.T) {
				for _, w := range Warnings(p, discovered()) {
					if strings.Contains(w, "resourceRules") && !strings.Contains(block, "resourceRules") {
						t.Errorf("a warning about a field that is not in the YAML: %s", w)
					}
				}
				if _, all := Unmatched(p, discovered()); all && p.Spec.Plugin.Name == v1alpha1.PluginPodSecurity {
					t.Error("no request matches the plugin")
				}
			})
		}
	}
	if shown < 15 {
		t.Errorf("the pages show %d policies, want one for each plugin", shown)
	}
}
