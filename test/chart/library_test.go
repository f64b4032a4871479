package chart

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

const (
	libraryDir      = "../../library"
	libraryChartDir = "../../charts/ostiary-policies"
)

// components are the objects that a kustomization installs, in which LIBRARY stands for the
// folder of the library.
func components(t *testing.T, kustomization string) map[string]object {
	t.Helper()
	dir := t.TempDir()
	library, err := filepath.Abs(libraryDir)
	if err == nil {
		library, err = filepath.Rel(dir, library)
	}
	if err != nil {
		t.Fatal(err)
	}
	kustomization = strings.ReplaceAll(kustomization, "LIBRARY", filepath.ToSlash(library))
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(kustomization), 0o600); err != nil {
		t.Fatal(err)
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatalf("%v\n%s", err, kustomization)
	}
	text, err := built.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]object{}
	for _, o := range parse(t, string(text)) {
		out[id(o)] = o
	}
	return out
}

func listed(folders ...string) string {
	return "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\ncomponents:\n- LIBRARY" +
		strings.Join(folders, "\n- LIBRARY") + "\n"
}

// stored are the policies and their roles in the folders of a category, or of all.
func stored(t *testing.T, category string) map[string]object {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(libraryDir, category, "*", "policy.yaml"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("found %d policies: %v", len(paths), err)
	}
	roles, err := filepath.Glob(filepath.Join(libraryDir, category, "*", "role.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	paths = append(paths, roles...)
	out := map[string]object{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		o := parse(t, string(text))[0]
		out[id(o)] = o
	}
	return out
}

// policiesOf are the policies that the chart of the library renders.
func policiesOf(t *testing.T, values string) (map[string]object, error) {
	t.Helper()
	c, err := loader.Load(libraryChartDir)
	if err != nil {
		t.Fatal(err)
	}
	given, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		t.Fatal(err)
	}
	all, err := chartutil.ToRenderValues(c, given, chartutil.ReleaseOptions{Name: "policies", IsInstall: true},
		chartutil.DefaultCapabilities.Copy())
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return nil, err
	}
	out := map[string]object{}
	for name, text := range files {
		if strings.HasSuffix(name, "policies.yaml") {
			for _, o := range parse(t, text) {
				out[id(o)] = o
			}
		}
	}
	return out, nil
}

func rendered(t *testing.T, values string) map[string]object {
	t.Helper()
	out, err := policiesOf(t, values)
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range out {
		o = withoutHelm(o)
		delete(o["metadata"].(object)["labels"].(object), "app.kubernetes.io/name")
		out[name] = o
	}
	return out
}

// TestLibraryComponents builds each component of the library.
func TestLibraryComponents(t *testing.T) {
	all := stored(t, "*")
	if diff := cmp.Diff(all, components(t, listed("", "/mutations", "/references"))); diff != "" {
		t.Errorf("all policies (-files +kustomize):\n%s", diff)
	}
	categories, err := filepath.Glob(libraryDir + "/*/*/policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	tested := map[string]bool{}
	for _, path := range categories {
		policy := filepath.Dir(path)
		category := filepath.Base(filepath.Dir(policy))
		if !tested[category] {
			tested[category] = true
			if diff := cmp.Diff(stored(t, category), components(t, listed("/"+category))); diff != "" {
				t.Errorf("%s (-files +kustomize):\n%s", category, diff)
			}
		}
		got := components(t, listed("/"+category+"/"+filepath.Base(policy)))
		want := map[string]object{}
		for _, name := range []string{"WebhookPolicy ", "ClusterRole ostiary-lookups-"} {
			if o := all[name+filepath.Base(policy)]; o != nil {
				want[id(o)] = o
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-files +kustomize):\n%s", policy, diff)
		}
	}
}

// TestLibraryActions enforces all policies with the components for it.
func TestLibraryActions(t *testing.T) {
	for component, action := range map[string]string{"warn": "Warn", "deny": "Deny"} {
		got := components(t, listed("", "/mutations", "/references", "/actions/"+component))
		for name, want := range stored(t, "*") {
			if bindings, ok := field(want, "spec", "bindings").([]any); ok {
				bindings[0].(object)["validationActions"] = []any{action, "Audit"}
			}
			if diff := cmp.Diff(want, got[name]); diff != "" {
				t.Errorf("%s with %s (-want +kustomize):\n%s", name, component, diff)
			}
		}
	}
}

// TestLibraryRollouts rolls out all validations, and previews all mutations.
func TestLibraryRollouts(t *testing.T) {
	got := components(t, listed("", "/mutations", "/references", "/actions/rollout", "/actions/preview"))
	mutations := stored(t, "mutations")
	for name, want := range stored(t, "*") {
		if field(want, "spec", "bindings") == nil { // a ClusterRole
			continue
		}
		binding := object{"name": "library"}
		if _, isMutation := mutations[name]; isMutation {
			binding["mutationAction"] = "Preview"
		} else {
			binding["rollout"] = object{
				"steps": []any{
					object{"name": "audit", "validationActions": []any{"Audit"}, "minDurationSeconds": float64(604800)},
					object{
						"name": "warn", "validationActions": []any{"Warn", "Audit"},
						"minDurationSeconds": float64(1209600), "maxViolations": float64(0),
					},
				},
				"final": object{"validationActions": []any{"Deny", "Audit"}},
			}
		}
		want["spec"].(object)["bindings"] = []any{binding}
		if diff := cmp.Diff(want, got[name]); diff != "" {
			t.Errorf("%s (-want +kustomize):\n%s", name, diff)
		}
	}
}

// TestLibraryChart compares the chart with the files that it is made of.
func TestLibraryChart(t *testing.T) {
	for values, without := range map[string][]string{
		"": {"mutations", "references"}, "categories: {mutations: {enabled: true}, references: {enabled: true}}": nil,
	} {
		want, got := stored(t, "*"), rendered(t, values)
		for _, category := range without {
			for name := range stored(t, category) {
				delete(want, name)
			}
		}
		if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got))); diff != "" {
			t.Errorf("policies with %q (-files +helm):\n%s", values, diff)
		}
		for name := range want {
			if diff := cmp.Diff(compacted(t, want[name]), got[name]); diff != "" {
				t.Errorf("%s (-file +helm):\n%s", name, diff)
			}
		}
	}
}

// compacted writes the params of a policy as the chart does.
func compacted(t *testing.T, policy object) object {
	t.Helper()
	variables, _ := field(policy, "spec", "variables").([]any)
	if len(variables) == 0 || variables[0].(object)["name"] != "params" {
		return policy
	}
	var params object
	if err := json.Unmarshal([]byte(variables[0].(object)["expression"].(string)), &params); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(params)
	if err != nil {
		t.Fatal(err)
	}
	variables[0].(object)["expression"] = string(text)
	return policy
}

const registries = "WebhookPolicy image-registries"

func TestLibraryValues(t *testing.T) {
	in := func(values string) func(o object) any {
		return func(o object) any { return field(o, strings.Split(values, ".")...) }
	}
	action := func(o object) any {
		return field(field(o, "spec", "bindings").([]any)[0].(object), "validationActions")
	}
	params := func(o object) any { return field(field(o, "spec", "variables").([]any)[0].(object), "expression") }
	selector := func(names ...any) any {
		return object{"matchExpressions": []any{object{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": names}}}
	}
	for name, tt := range map[string]struct {
		values string
		get    func(object) any
		want   any
	}{
		"actions of all": {values: "actions: [Warn]", get: action, want: []any{"Warn"}},
		"actions of a category": {
			values: "actions: [Warn]\ncategories: {best-practices: {actions: [Deny]}}",
			get:    action,
			want:   []any{"Deny"},
		},
		"actions of a policy": {
			values: "categories: {best-practices: {actions: [Deny]}}\npolicies: {image-registries: {actions: [Warn, Audit]}}",
			get:    action,
			want:   []any{"Warn", "Audit"},
		},
		"actions of another one": {values: "policies: {image-tags: {actions: [Deny]}}", get: action, want: []any{"Audit"}},
		"params": {
			values: `policies: {image-registries: {params: {registries: ["a.example/b", "c<\"d"]}}}`,
			get:    params,
			want:   `{"registries":["a.example/b","c\u003c\"d"]}`,
		},
		"no exclusions": {get: in("spec.matchConstraints.namespaceSelector")},
		"namespaces": {
			values: "exclude: {namespaces: [a]}\ncategories: {best-practices: {exclude: {namespaces: [b, a]}}, rbac: {exclude: " +
				"{namespaces: [d]}}}\npolicies: {image-registries: {exclude: {namespaces: [c]}}}",
			get: in("spec.matchConstraints.namespaceSelector"), want: selector("a", "b", "c"),
		},
		"users and groups": {
			values: "exclude: {users: ['system:serviceaccount:a:b'], groups: [admins, 'a\"b']}",
			get:    in("spec.matchConditions"), want: []any{
				object{"name": "not-an-excluded-user", "expression": `!(request.userInfo.username in ["system:serviceaccount:a:b"])`},
				object{"name": "not-in-excluded-group-0", "expression": `!("admins" in request.userInfo.groups)`},
				object{"name": "not-in-excluded-group-1", "expression": `!("a\"b" in request.userInfo.groups)`},
				object{"name": "new-or-changed", "expression": `request.operation == "CREATE" || object.spec != oldObject.spec`},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, tt.get(rendered(t, tt.values)[registries])); diff != "" {
				t.Errorf("(-want +helm):\n%s", diff)
			}
		})
	}
}

// TestLibraryEnabled enables and disables categories and policies.
func TestLibraryEnabled(t *testing.T) {
	for name, tt := range map[string]struct {
		values string
		want   map[string]bool
	}{
		"a category that is off": {
			values: "categories: {best-practices: {enabled: false}}",
			want:   map[string]bool{registries: false, "WebhookPolicy wildcards": true},
		},
		"one policy of it": {
			values: "categories: {best-practices: {enabled: false}}\npolicies: {image-registries: {enabled: true}}",
			want:   map[string]bool{registries: true, "WebhookPolicy image-tags": false},
		},
		"a policy that is off": {
			values: "policies: {image-registries: {enabled: false}}",
			want:   map[string]bool{registries: false, "WebhookPolicy image-tags": true},
		},
		"a mutation": {
			values: "policies: {default-seccomp: {enabled: true}}",
			want:   map[string]bool{"WebhookPolicy default-seccomp": true, "WebhookPolicy pull-tags": false},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := rendered(t, tt.values)
			for policy, want := range tt.want {
				if (got[policy] != nil) != want {
					t.Errorf("%s is rendered: %t, want %t", policy, !want, want)
				}
			}
		})
	}
}

func TestLibraryRefuses(t *testing.T) {
	for name, tt := range map[string]struct{ values, want string }{
		"an unknown policy":          {"policies: {image-tag: {}}", "image-tag"},
		"an unknown category":        {"categories: {best: {}}", "best"},
		"an unknown action":          {"actions: [Block]", "at '/actions/0'"},
		"Warn and Deny":              {"actions: [Warn, Deny]", "at '/actions'"},
		"no actions":                 {"actions: []", "at '/actions'"},
		"a list as params":           {"policies: {image-registries: {params: {registries: ghcr.io}}}", "registries"},
		"unknown params":             {"policies: {image-registries: {params: {registry: []}}}", "registry"},
		"params of a policy without": {"policies: {image-tags: {params: {a: b}}}", "params"},
		"what is no namespace":       {"exclude: {namespaces: [A]}", "at '/exclude/namespaces/0'"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := policiesOf(t, tt.values); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
		})
	}
}

// TestLibraryDocument builds the kustomizations and renders the values that docs/policies/library.md
// shows.
func TestLibraryDocument(t *testing.T) {
	text, err := os.ReadFile("../../docs/policies/library.md")
	if err != nil {
		t.Fatal(err)
	}
	kustomizations, values := blocks(string(text), "kustomization"), blocks(string(text), "values")
	if len(kustomizations) < 2 || len(values) < 2 {
		t.Fatalf("the document shows %d kustomizations and %d files of values", len(kustomizations), len(values))
	}
	for _, k := range kustomizations {
		local := regexp.MustCompile(`https://github\.com/ostiary/ostiary//library(/?)([^?\n]*)\?ref=[^\n]*`).ReplaceAllString(k, "LIBRARY$1$2")
		if len(components(t, local)) == 0 {
			t.Errorf("no policies are built by\n%s", k)
		}
	}
	for _, v := range values {
		if len(rendered(t, v)) == 0 {
			t.Errorf("no policies are rendered with\n%s", v)
		}
	}
}

func blocks(document, kind string) (out []string) {
	for _, part := range strings.Split(document, "\n```yaml "+kind+"\n")[1:] {
		block, _, _ := strings.Cut(part, "```")
		out = append(out, block)
	}
	return out
}
