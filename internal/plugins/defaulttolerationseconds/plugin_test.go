package defaulttolerationseconds_test

import (
	"fmt"
	"testing"

	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/test/plugintest"
)

func toleration(key string, seconds int) string {
	return fmt.Sprintf(`{"effect":"NoExecute","key":"node.kubernetes.io/%s","operator":"Exists","tolerationSeconds":%d}`, key, seconds)
}

func TestSeconds(t *testing.T) {
	const fast = "{defaultNotReadyTolerationSeconds: 30, defaultUnreachableTolerationSeconds: 60}"
	notReady, unreachable := toleration("not-ready", 30), toleration("unreachable", 60)
	native := toleration("not-ready", 300) + "," + toleration("unreachable", 300)
	long, other := toleration("not-ready", 700), `{"effect":"NoSchedule","key":"foo","operator":"Equal","value":"bar"}`
	tests := map[string]struct {
		config, list string
		update       bool
		want         string
	}{
		"added by the API server":            {config: fast, list: native, want: notReady + "," + unreachable},
		"none, as where it does not add any": {config: fast, want: notReady + "," + unreachable},
		"its own seconds":                    {config: "{}", list: native, want: native},
		"without others":                     {config: "{}", want: native},
		"beside another":                     {config: fast, list: other + "," + native, want: other + "," + notReady + "," + unreachable},
		"one of the author's":                {config: fast, list: long + "," + toleration("unreachable", 300), want: long + "," + unreachable},
		"one of the author's, alone":         {config: fast, list: long, want: long + "," + unreachable},
		"both of the author's": {
			config: fast,
			list:   long + "," + toleration("unreachable", 700),
			want:   long + "," + toleration("unreachable", 700),
		},
		"for all effects": {
			config: fast,
			list:   `{"key":"node.kubernetes.io/unreachable","operator":"Exists"}`,
			want:   `{"key":"node.kubernetes.io/unreachable","operator":"Exists"},` + notReady,
		},
		"for everything": {config: fast, list: `{"operator":"Exists"}`, want: `{"operator":"Exists"}`},
		"of a DaemonSet": {
			config: fast,
			list: `{"effect":"NoExecute","key":"node.kubernetes.io/not-ready","operator":"Exists"},{"effect":"NoExecute",` +
				`"key":"node.kubernetes.io/unreachable","operator":"Exists"}`,
			want: `{"effect":"NoExecute","key":"node.kubernetes.io/not-ready","operator":"Exists"},{"effect":"NoExecute",` +
				`"key":"node.kubernetes.io/unreachable","operator":"Exists"}`,
		},
		"other seconds of the API server": {
			config: "{apiServerSeconds: 700, defaultNotReadyTolerationSeconds: 30}",
			list:   long + "," + toleration("unreachable", 10),
			want:   notReady + "," + toleration("unreachable", 10),
		},
		"none is replaced on update": {config: fast, list: native, update: true, want: native},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := plugintest.Request{Object: plugintest.Pod("{tolerations: [" + tc.list + "]}")}
			if tc.update {
				r.Operation, r.OldObject = "UPDATE", r.Object
			}
			got := plugintest.Ask(t, "plugin: {name: DefaultTolerationSeconds, config: "+tc.config+"}", r, policy.Environment{})
			if list := got.Field("spec", "tolerations"); got.Code != 0 || list != "["+tc.want+"]" {
				t.Errorf("%d %q, tolerations %s, want %s", got.Code, got.Message, list, tc.want)
			}
		})
	}
}
