package extendedresourcetoleration_test

import (
	"testing"

	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/test/plugintest"
)

func TestResources(t *testing.T) {
	const (
		one, two = `{"effect":"NoSchedule","key":"example.com/device-ek",` +
			`"operator":"Exists"}`, `{"effect":"NoSchedule","key":"example.com/device-do","operator":"Exists"}`
		foo     = `{"effect":"NoSchedule","key":"foo","operator":"Equal","value":"bar"}`
		asksOne = "containers: [{resources: {requests: {cpu: 1}}}, {resources: {requests: {example.com/device-ek: 1}}}], "
		asksTwo = "initContainers: [{resources: {requests: {example.com/device-do: 2}}}], "
	)
	tests := map[string]struct{ spec, want string }{
		"no containers":             {},
		"only processors":           {spec: "containers: [{resources: {requests: {cpu: 1}}}], "},
		"only memory, of init":      {spec: "initContainers: [{resources: {requests: {memory: 1}}}], "},
		"one":                       {spec: asksOne, want: "[" + one + "]"},
		"one of init":               {spec: asksTwo, want: "[" + two + "]"},
		"beside another toleration": {spec: asksOne + "tolerations: [" + foo + "]", want: "[" + foo + "," + one + "]"},
		"several, by name":          {spec: asksOne + asksTwo, want: "[" + two + "," + one + "]"},
		"tolerated already":         {spec: asksOne + "tolerations: [" + one + "]", want: "[" + one + "]"},
		"another effect and value": {
			spec: asksOne + `tolerations: [{"key":"example.com/device-ek","operator":"Equal","value":"foo","effect":"NoExecute"}]`,
			want: `[{"effect":"NoExecute","key":"example.com/device-ek","operator":"Equal","value":"foo"},` + one + "]",
		},
		"for everything": {
			spec: asksOne + `tolerations: [{"operator":"Exists"}]`,
			want: `[{"operator":"Exists"},` + one + "]",
		},
		"for a time is made for good": {
			spec: asksOne + `tolerations: [{"effect":"NoSchedule","key":"example.com/device-ek","operator":"Exists","tolerationSeconds":5}]`,
			want: "[" + one + "]",
		},
		"Kubernetes' own are none": {
			spec: "containers: [{resources: {requests: {kubernetes.io/a: 1, sub.kubernetes.io/b: 1, hugepages-2Mi: 1, " +
				"requests.example.com/c: 1}}}], ",
		},
		"limits alone are no requests":    {spec: "containers: [{resources: {limits: {example.com/device-ek: 1}}}], "},
		"a name that no quota could have": {spec: "containers: [{resources: {requests: {example.com/a/b: 1}}}], "},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := plugintest.Ask(t, "plugin: {name: ExtendedResourceToleration}",
				plugintest.Request{Object: plugintest.Pod("{" + tc.spec + "}")}, policy.Environment{})
			if list := got.Field("spec", "tolerations"); got.Code != 0 || list != tc.want {
				t.Errorf("%d %q, tolerations %s, want %s", got.Code, got.Message, list, tc.want)
			}
		})
	}
}
