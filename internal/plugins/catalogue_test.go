package plugins

import (
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/pluginapi"
)

// TestTraits: what is known of a plugin by its name alone is true.
func TestTraits(t *testing.T) {
	for _, d := range All() {
		plugin, _ := d.New(nil, nil)
		if plugin == nil {
			t.Fatalf("without a configuration it is not known what %s is for", d.Name)
		}
		_, mutates := plugin.(pluginapi.Mutator)
		_, validates := plugin.(pluginapi.Validator)
		traits := d.Name.Traits()
		if traits.Mutates != mutates || traits.Validates != validates || !mutates && !validates {
			t.Errorf("traits of %s: %+v, and it mutates: %t, and validates: %t", d.Name, traits, mutates, validates)
		}
		if len(plugin.Rules()) == 0 {
			t.Errorf("%s is for no requests", d.Name)
		}
	}
}

// TestNames: the CustomResourceDefinition accepts the names of the catalogue,
// in whose order they stand, and no others.
func TestNames(t *testing.T) {
	var crd apiextensionsv1.CustomResourceDefinition
	text, err := os.ReadFile("../../config/crd/bases/admission.ostiary.dev_webhookpolicies.yaml")
	if err == nil {
		err = yaml.Unmarshal(text, &crd)
	}
	if err != nil {
		t.Fatal(err)
	}
	var accepted, known []string
	for _, name := range crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties["plugin"].Properties["name"].Enum {
		accepted = append(accepted, string(name.Raw[1:len(name.Raw)-1]))
	}
	for _, d := range All() {
		known = append(known, string(d.Name))
	}
	if diff := cmp.Diff(known, accepted); diff != "" || !slices.IsSorted(known) {
		t.Errorf("names (-known +accepted):\n%s", diff)
	}
}

func TestResolve(t *testing.T) {
	tests := map[string]struct {
		spec       string
		wantRules  string // YAML
		wantErrors []string
	}{
		"no plugin":     {spec: "matchConstraints: {resourceRules: []}"},
		"its own rules": {spec: "plugin: {name: DenyServiceExternalIPs}", wantRules: "[{apiGroups: [''], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [services]}]"},
		"with an option": {spec: "plugin: {name: AlwaysPullImages, config: {ephemeralContainers: true}}",
			wantRules: "[{apiGroups: [''], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods]}, {apiGroups: [''], apiVersions: [v1], operations: [UPDATE], resources: [pods/ephemeralcontainers]}]"},
		"selectors alone": {spec: "plugin: {name: DenyServiceExternalIPs}\nmatchConstraints: {namespaceSelector: {}}",
			wantRules: "[{apiGroups: [''], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [services]}]"},
		"narrowed": {spec: "plugin: {name: DenyServiceExternalIPs}\nmatchConstraints: {resourceRules: [{apiGroups: ['*'], apiVersions: ['*'], operations: [CREATE, DELETE], resources: ['*'], scope: Namespaced, resourceNames: [a]}]}",
			wantRules: "[{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [services], scope: Namespaced, resourceNames: [a]}]"},
		"nothing left": {spec: "plugin: {name: DenyServiceExternalIPs}\nmatchConstraints: {resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}]}",
			wantErrors: []string{"spec.matchConstraints.resourceRules: Forbidden: remove the rules, or use rules that DenyServiceExternalIPs supports: CREATE and UPDATE of services in version v1"}},
		"unknown field": {spec: "plugin: {name: AlwaysPullImages, config: {ephemeral: true}}",
			wantRules:  "[{apiGroups: [''], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods]}]",
			wantErrors: []string{`spec.plugin.config.ephemeral: Forbidden: remove it: unknown field "spec.plugin.config.ephemeral"`}},
		"wrong type": {spec: "plugin: {name: AlwaysPullImages, config: {ephemeralContainers: 'yes'}}",
			wantRules:  "[{apiGroups: [''], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods]}]",
			wantErrors: []string{"spec.plugin.config.ephemeralContainers: Invalid value: write a value that fits bool instead of a string"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := policyFrom(t, tc.spec)
			before := p.DeepCopy()
			got := Resolve(p)
			var errs []string
			for _, err := range got.Errors {
				errs = append(errs, err.Error())
			}
			if diff := cmp.Diff(tc.wantErrors, errs); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
			rules := ""
			if m := got.Policy.Spec.MatchConstraints; m != nil && len(m.ResourceRules) > 0 {
				rules = toYAML(t, m.ResourceRules)
			}
			if want := sameYAML(t, tc.wantRules); rules != want {
				t.Errorf("rules:\n%s\nwant:\n%s", rules, want)
			}
			if diff := cmp.Diff(before, p); diff != "" {
				t.Errorf("the policy was changed:\n%s", diff)
			}
		})
	}
}

// TestUnknownName: the message lists the names that are known.
func TestUnknownName(t *testing.T) {
	errs := Resolve(policyFrom(t, "plugin: {name: PodNodeSelektor}")).Errors
	const want = `spec.plugin.name: Unsupported value: "PodNodeSelektor": supported values: "AlwaysPullImages", "DenyServiceExternalIPs"`
	if len(errs) != 1 || len(errs[0].Error()) < len(want) || errs[0].Error()[:60] != want[:60] {
		t.Errorf("errors: %v", errs)
	}
}

func TestIntersectResources(t *testing.T) {
	tests := map[string]struct{ a, b, want []string }{
		"equal":                 {[]string{"pods"}, []string{"pods"}, []string{"pods"}},
		"all, subresources too": {[]string{"pods", "pods/status"}, []string{"*/*"}, []string{"pods", "pods/status"}},
		"all resources":         {[]string{"pods", "pods/status"}, []string{"*"}, []string{"pods"}},
		"all of a resource":     {[]string{"pods", "services"}, []string{"pods/*"}, []string{"pods"}},
		"a subresource of all":  {[]string{"pods/status", "pods"}, []string{"*/status"}, []string{"pods/status"}},
		"crossed":               {[]string{"pods/*"}, []string{"*/status"}, []string{"pods/status"}},
		"nothing":               {[]string{"pods"}, []string{"services", "pods/status"}, nil},
		"own wildcard":          {[]string{"*/*"}, []string{"pods", "pods/status"}, []string{"pods", "pods/status"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, intersectResources(tc.a, tc.b)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func policyFrom(t *testing.T, spec string) *v1alpha1.WebhookPolicy {
	t.Helper()
	p := &v1alpha1.WebhookPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
		t.Fatal(err)
	}
	return p
}

func toYAML(t *testing.T, v any) string {
	t.Helper()
	out, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func sameYAML(t *testing.T, text string) string {
	t.Helper()
	if text == "" {
		return ""
	}
	var v any
	if err := yaml.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return toYAML(t, v)
}
