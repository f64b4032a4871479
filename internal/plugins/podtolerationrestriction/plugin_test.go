package podtolerationrestriction_test

import (
	"strings"
	"testing"

	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/test/plugintest"
)

const (
	a      = `{"effect":"NoSchedule","key":"k","operator":"Equal","value":"a"}`
	b      = `{"effect":"NoSchedule","key":"k","operator":"Equal","value":"b"}`
	memory = `{"effect":"NoSchedule","key":"node.kubernetes.io/memory-pressure","operator":"Exists"}`
	asking = "containers: [{name: c, resources: {requests: {cpu: 1}}}], "
)

func TestTolerations(t *testing.T) {
	const refused = `pods "web" is forbidden: pod tolerations (possibly merged with namespace default tolerations) conflict with its `
	tests := map[string]struct {
		config            string
		defaults, allowed *string // annotations
		spec              string
		update            bool
		want, wantRefused string
	}{
		"cluster default": {config: "default: [" + a + "]", want: "[" + a + "]"},
		"cluster default that the Pod has": {
			config:   "default: [" + a + "]",
			defaults: new("[]"),
			spec:     "tolerations: [" + a + "]",
			want:     "[" + a + "]",
		},
		"of the namespace, and of the Pod": {
			defaults: new("[" + a + "]"),
			spec:     "tolerations: [" + a + "]",
			want:     "[" + a + "]",
		},
		"of the namespace": {defaults: new("[" + a + "]"), want: "[" + a + "]"},
		"another value": {
			defaults: new("[" + a + "]"),
			spec:     "tolerations: [" + b + "]",
			want:     "[" + b + "," + a + "]",
		},
		"empty in the namespace": {
			config:   "default: [" + b + "]",
			defaults: new("[]"),
			spec:     "tolerations: [" + a + "]",
			want:     "[" + a + "]",
		},
		"empty text in the namespace": {
			config:   "default: [" + b + "]",
			defaults: new(""),
			spec:     "tolerations: [" + a + "]",
			want:     "[" + a + "]",
		},
		"null in the namespace": {
			config:   "default: [" + b + "]",
			defaults: new("null"),
			spec:     "tolerations: [" + a + "]",
			want:     "[" + a + "]",
		},
		"allowed": {
			defaults: new("[" + a + "]"),
			allowed:  new("[" + a + "]"),
			want:     "[" + a + "]",
		},
		"default taken away by an empty one": {config: "default: [" + a + "]", defaults: new("[]")},
		"an empty list of the namespace allows any": {
			config:  "whitelist: [" + b + "]",
			allowed: new("[]"),
			spec:    "tolerations: [" + a + "]",
			want:    "[" + a + "]",
		},
		"not allowed in the namespace": {
			defaults:    new("[" + a + "]"),
			allowed:     new("[" + b + "]"),
			wantRefused: refused + "namespace whitelist",
		},
		"not allowed in the cluster": {
			config:      "whitelist: [" + b + "]",
			spec:        "tolerations: [" + a + "]",
			wantRefused: refused + "cluster whitelist",
		},
		"no toleration, nothing to allow":    {config: "whitelist: [" + b + "]"},
		"memory pressure, for one that asks": {spec: asking, want: "[" + memory + "]"},
		"memory pressure and those of the namespace": {
			defaults: new("[" + a + "]"),
			spec:     asking,
			want:     "[" + a + "," + memory + "]",
		},
		"memory pressure is not allowed": {
			config:      "whitelist: [" + a + "]",
			spec:        asking,
			wantRefused: refused + "cluster whitelist",
		},
		"limits ask too": {
			spec: "initContainers: [{name: c, resources: {limits: {memory: 1Gi}}}], ",
			want: "[" + memory + "]",
		},
		"asking for nothing": {
			spec: "containers: [{name: c, resources: {requests: {cpu: 0, example.com/gpu: 1}}}], ",
		},
		"resources of the Pod":             {spec: "resources: {requests: {cpu: 1}}, ", want: "[" + memory + "]"},
		"what the status says comes first": {spec: asking + "}, status: {qosClass: BestEffort"},
		"two of the same key": {
			spec:     "tolerations: [" + a + "," + b + "]",
			defaults: new("[]"),
			want:     "[" + a + "," + b + "]",
		},
		"a wider one covers": {
			spec:     "tolerations: [{key: k, operator: Exists}]",
			defaults: new("[" + a + "]"),
			want:     `[{"key":"k","operator":"Exists"}]`,
		},
		"a wider one takes the place": {
			spec:     "tolerations: [" + a + "]",
			defaults: new(`[{"key":"k","operator":"Exists"}]`),
			want:     `[{"key":"k","operator":"Exists"}]`,
		},
		"all": {
			spec:     "tolerations: [" + a + "]",
			defaults: new(`[{"operator":"Exists"}]`),
			want:     `[{"operator":"Exists"}]`,
		},
		"longer is not covered": {
			spec:        "tolerations: [{key: nn, operator: Exists, effect: NoExecute, tolerationSeconds: 300}]",
			allowed:     new(`[{"key":"nn","operator":"Exists","effect":"NoExecute","tolerationSeconds":60}]`),
			wantRefused: refused + "namespace whitelist",
		},
		"shorter is": {
			spec:    "tolerations: [{key: nn, operator: Exists, effect: NoExecute, tolerationSeconds: 30}]",
			allowed: new(`[{"key":"nn","operator":"Exists","effect":"NoExecute","tolerationSeconds":60}]`),
			want:    `[{"effect":"NoExecute","key":"nn","operator":"Exists","tolerationSeconds":30}]`,
		},
		"an operator left out is covered by its like": {
			spec:    "tolerations: [{key: k, value: a}]",
			allowed: new(`[{"key":"k","value":"a"}]`),
			want:    `[{"key":"k","value":"a"}]`,
		},
		"and by no other": {
			spec:    "tolerations: [{key: k, value: a}]",
			allowed: new(`[{"key":"k","value":"a","effect":""}, {"key":"k","operator":"Equal","value":"a"}]`),
			want:    `[{"key":"k","value":"a"}]`,
		},
		"no defaults on update":     {update: true, defaults: new("[" + a + "]"), spec: "containers: [], "},
		"memory pressure on update": {update: true, spec: asking, want: "[" + memory + "]"},
		"checked on update": {
			update:      true,
			config:      "whitelist: [" + b + "]",
			spec:        "tolerations: [" + a + "]",
			wantRefused: refused + "cluster whitelist",
		},
		"unknown fields stay": {
			spec:     "tolerations: [{key: k, operator: Equal, value: b, effect: NoSchedule, tomorrow: 1}]",
			defaults: new("[" + a + "]"),
			want:     `[{"effect":"NoSchedule","key":"k","operator":"Equal","tomorrow":1,"value":"b"},` + a + "]",
		},
		"defaults that cannot be read": {
			defaults: new("{"),
			wantRefused: `pods "web" is forbidden: the annotation scheduler.alpha.kubernetes.io/defaultTolerations of ` +
				`namespace shop is not a list of tolerations in JSON: `,
		},
		"allowed ones that cannot be read": {
			spec:    "tolerations: [" + a + "]",
			allowed: new(`[{"key":1}]`),
			wantRefused: `pods "web" is forbidden: the annotation scheduler.alpha.kubernetes.io/tolerationsWhitelist of ` +
				`namespace shop is not a list of tolerations in JSON: `,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			annotations := map[string]string{}
			for key, value := range map[string]*string{"defaultTolerations": tc.defaults, "tolerationsWhitelist": tc.allowed} {
				if value != nil {
					annotations["scheduler.alpha.kubernetes.io/"+key] = *value
				}
			}
			r := plugintest.Request{Object: plugintest.Pod("{" + tc.spec + "}")}
			if tc.update {
				r.Operation, r.OldObject = "UPDATE", r.Object
			}
			spec := "plugin: {name: PodTolerationRestriction, config: {" + tc.config + "}}"
			got := plugintest.Ask(t, spec, r, policy.Environment{Namespaces: plugintest.Namespaces{Annotations: annotations}})
			if list := got.Field("spec", "tolerations"); list != tc.want || !strings.HasPrefix(got.Message, tc.wantRefused) ||
				tc.wantRefused != "" && got.Code != 403 || tc.wantRefused == "" && got.Code != 0 {
				t.Errorf("%d %q, tolerations %s, want %q, %s", got.Code, got.Message, list, tc.wantRefused, tc.want)
			}
		})
	}
}
