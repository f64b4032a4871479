package podnodeselector_test

import (
	"strings"
	"testing"

	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/test/plugintest"
)

func TestNodeSelectors(t *testing.T) {
	const (
		conflict = `pods "web" is forbidden: pod node label selector conflicts with its namespace node label selector`
		beyond   = `pods "web" is forbidden: pod node label selector labels conflict with its namespace whitelist`
	)
	tests := map[string]struct {
		config     string
		annotation *string
		selector   string
		want       string // the Pod's selector, in JSON
		refused    string // how the message begins
		update     bool
	}{
		"none": {selector: "{}", want: "{}"},
		"cluster default": {
			config: "clusterDefaultNodeSelector: infra = false",
			want:   `{"infra":"false"}`,
		},
		"of the namespace, with white space": {annotation: new(" infra = false "), want: `{"infra":"false"}`},
		"of the namespace before the default": {
			config:     "clusterDefaultNodeSelector: infra=false",
			annotation: new("infra=true"),
			want:       `{"infra":"true"}`,
		},
		"empty in the namespace": {config: "clusterDefaultNodeSelector: infra=false", annotation: new("")},
		"merged": {
			annotation: new("infra=true"),
			selector:   "{env: test}",
			want:       `{"env":"test","infra":"true"}`,
		},
		"conflicting": {annotation: new("infra=true"), selector: "{infra: 'false'}", refused: conflict},
		"conflicting in one of several": {
			annotation: new("infra=false, env = test"),
			selector:   "{env: dev, color: blue}",
			refused:    conflict,
		},
		"within what is allowed": {
			config:     "shop: 'env=dev, infra=false, color=blue'",
			annotation: new("infra=false, env = dev"),
			selector:   "{env: dev, color: blue}",
			want:       `{"color":"blue","env":"dev","infra":"false"}`,
		},
		"beyond what is allowed": {
			config:     "shop: 'env=dev, infra=true, color=blue'",
			annotation: new("infra=false, env = dev"),
			selector:   "{env: dev, color: blue}",
			refused:    beyond,
		},
		"the default is beyond it":     {config: "{clusterDefaultNodeSelector: env=dev, shop: env=prd}", refused: beyond},
		"allowed in another namespace": {config: "search: env=prd", selector: "{env: dev}", want: `{"env":"dev"}`},
		"nothing allowed means all":    {config: "shop: ''", selector: "{env: dev}", want: `{"env":"dev"}`},
		"the whole native file": {
			config: "podNodeSelectorPluginConfig: {clusterDefaultNodeSelector: infra=false, shop: infra=false}",
			want:   `{"infra":"false"}`,
		},
		"an annotation that cannot be read": {
			annotation: new("infra"),
			refused: `pods "web" is forbidden: the annotation scheduler.alpha.kubernetes.io/node-selector of namespace shop ` +
				`is not a list of labels, as key=value joined by commas: `,
		},
		"an annotation with another operator": {
			annotation: new("infra!=a"),
			refused: `pods "web" is forbidden: the annotation scheduler.alpha.kubernetes.io/node-selector of namespace shop ` +
				`is not a list of labels`,
		},
		"updates are left alone": {
			update:     true,
			annotation: new("infra=true"),
			selector:   "{infra: 'false'}",
			want:       `{"infra":"false"}`,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			host := policy.Environment{Namespaces: plugintest.Namespaces{}}
			if tc.annotation != nil {
				host.Namespaces = plugintest.Namespaces{Annotations: map[string]string{"scheduler.alpha.kubernetes.io/node-selector": *tc.annotation}}
			}
			pod := plugintest.Pod("{}")
			if tc.selector != "" {
				pod = plugintest.Pod("{nodeSelector: " + tc.selector + "}")
			}
			r := plugintest.Request{Object: pod}
			if tc.update {
				r.Operation, r.OldObject = "UPDATE", pod
			}
			config := tc.config
			if config == "" {
				config = "{}"
			}
			got := plugintest.Ask(t, "plugin:\n  name: PodNodeSelector\n  config:\n    "+config, r, host)
			if selector := got.Field("spec", "nodeSelector"); selector != tc.want ||
				!strings.HasPrefix(got.Message, tc.refused) || tc.refused != "" && got.Code != 403 {
				t.Errorf("%d %q, selector %s, want %q, %s", got.Code, got.Message, selector, tc.refused, tc.want)
			}
		})
	}
}

// A conflict is refused before another webhook can take away what conflicts.
func TestRefusedInTheMutatingPhase(t *testing.T) {
	group, p := plugintest.Compile(t, "plugin: {name: PodNodeSelector}")
	host := policy.Environment{
		Namespaces: plugintest.Namespaces{
			Annotations: map[string]string{"scheduler.alpha.kubernetes.io/node-selector": "a=b"},
		},
	}
	got := plugintest.Put(t, group, p, plugintest.Request{Object: plugintest.Pod("{nodeSelector: {a: c}}"), MutatingOnly: true}, host)
	if got.Code != 403 {
		t.Errorf("%d %s", got.Code, got.Message)
	}
}
