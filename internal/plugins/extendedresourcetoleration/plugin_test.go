package extendedresourcetoleration_test

import (
	"testing"

	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/test/plugintest"
)

func TestResources(t *testing.T) {
	const (
		one, two = `{"effect":"NoSchedule","key":"example.com/device-ek","operator":"Exists"}`, `{"effect":"NoSchedule","key":"example.com/device-do","operator":"Exists"}`
		foo      = `{"effect":"NoSchedule","key":"foo","operator":"Equal","value":"bar"}`
		asksOne  = "containers: [{resources: {requests: {cpu: 1}}}, {resources: {requests: {example.com/device-ek: 1}}}], "
		asksTwo  = "initContainers: [{resources: {requests: {example.com/device-do: 2}}}], "
	)
	tests := map[string]struct{ spec, want string }{
		"no containers":                   {"", ""},
		"only processors":                 {"containers: [{resources: {requests: {cpu: 1}}}], ", ""},
		"only memory, of init":            {"initContainers: [{resources: {requests: {memory: 1}}}], ", ""},
		"one":                             {asksOne, "[" + one + "]"},
		"one of init":                     {asksTwo, "[" + two + "]"},
		"beside another toleration":       {asksOne + "tolerations: [" + foo + "]", "[" + foo + "," + one + "]"},
		"several, by name":                {asksOne + asksTwo, "[" + two + "," + one + "]"},
		"tolerated already":               {asksOne + "tolerations: [" + one + "]", "[" + one + "]"},
		"another effect and value":        {asksOne + `tolerations: [{"key":"example.com/device-ek","operator":"Equal","value":"foo","effect":"NoExecute"}]`, `[{"effect":"NoExecute","key":"example.com/device-ek","operator":"Equal","value":"foo"},` + one + "]"},
		"for everything":                  {asksOne + `tolerations: [{"operator":"Exists"}]`, `[{"operator":"Exists"},` + one + "]"},
		"for a time is made for good":     {asksOne + `tolerations: [{"effect":"NoSchedule","key":"example.com/device-ek","operator":"Exists","tolerationSeconds":5}]`, "[" + one + "]"},
		"Kubernetes' own are none":        {"containers: [{resources: {requests: {kubernetes.io/a: 1, sub.kubernetes.io/b: 1, hugepages-2Mi: 1, requests.example.com/c: 1}}}], ", ""},
		"limits alone are no requests":    {"containers: [{resources: {limits: {example.com/device-ek: 1}}}], ", ""},
		"a name that no quota could have": {"containers: [{resources: {requests: {example.com/a/b: 1}}}], ", ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := plugintest.Ask(t, "plugin: {name: ExtendedResourceToleration}", plugintest.Request{Object: plugintest.Pod("{" + tc.spec + "}")}, policy.Environment{})
			if list := got.Field("spec", "tolerations"); got.Code != 0 || list != tc.want {
				t.Errorf("%d %q, tolerations %s, want %s", got.Code, got.Message, list, tc.want)
			}
		})
	}
}
