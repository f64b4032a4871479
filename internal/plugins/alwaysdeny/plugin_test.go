package alwaysdeny_test

import (
	"testing"
	"time"

	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/test/plugintest"
)

func TestFreeze(t *testing.T) {
	noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	tests := map[string]struct {
		config, operation string
		now               time.Time
		want              string
	}{
		"in the native words": {now: noon, want: `pods "web" is forbidden: admission control is denying all modifications`},
		"in its own": {
			config: "message: nothing changes until Monday",
			now:    noon,
			want:   `pods "web" is forbidden: nothing changes until Monday`,
		},
		"deletion": {
			operation: "DELETE",
			now:       noon,
			want:      `pods "web" is forbidden: admission control is denying all modifications`,
		},
		"before its end": {
			config: "until: '2030-01-01T12:00:01Z'",
			now:    noon,
			want:   `pods "web" is forbidden: admission control is denying all modifications`,
		},
		"at its end": {config: "until: '2030-01-01T13:00:00+01:00'", now: noon},
		"after it":   {config: "until: '2030-01-01T11:59:59Z'", now: noon},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := plugintest.Request{Object: plugintest.Pod("{}")}
			if tc.operation == "DELETE" {
				r.Operation, r.Object, r.OldObject = "DELETE", "", r.Object
			}
			got := plugintest.Ask(t, "plugin: {name: AlwaysDeny, config: {"+tc.config+"}}", r,
				policy.Environment{Now: func() time.Time { return tc.now }})
			if got.Message != tc.want || tc.want != "" && got.Code != 403 {
				t.Errorf("%d %q, want %q", got.Code, got.Message, tc.want)
			}
		})
	}
}
