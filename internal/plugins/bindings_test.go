package plugins_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/test/plugintest"
)

// TestActions: the actions of bindings hold for plugins, which the native ones
// never had.
func TestActions(t *testing.T) {
	const (
		plugin  = "plugin: {name: DenyServiceExternalIPs}\n"
		service = "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {externalIPs: [1.1.1.1]}}"
		refusal = `services "web" is forbidden: Use of external IPs is denied by admission control`
	)
	tests := map[string]struct {
		spec                          string
		wantCode                      int32
		wantMessage, wantWarning, log string
	}{
		"without bindings": {spec: plugin, wantCode: 403, wantMessage: refusal},
		"Deny and Audit": {spec: plugin + "bindings: [{name: b, validationActions: [Deny, Audit]}]", wantCode: 403,
			wantMessage: "WebhookPolicy 'p' with binding 'b' denied request: " + refusal, log: "validation_failure"},
		"Warn": {
			spec:        plugin + "bindings: [{name: b, validationActions: [Warn]}]",
			wantWarning: "Validation failed for WebhookPolicy 'p' with binding 'b': " + refusal,
		},
		"Audit": {spec: plugin + "bindings: [{name: b, validationActions: [Audit]}]", log: "validation_failure"},
		"a condition is true": {
			spec:        plugin + "matchConditions: [{name: c, expression: 'object.metadata.name == \"web\"'}]",
			wantCode:    403,
			wantMessage: refusal,
		},
		"a condition is false": {
			spec: plugin + "variables: [{name: v, expression: 'false'}]\nmatchConditions: [{name: c, expression: 'variables.v'}]",
		},
		"a condition fails": {spec: plugin + "matchConditions: [{name: c, expression: 'object.spec.nope == 1'}]", wantCode: 422,
			wantMessage: "expression 'object.spec.nope == 1' resulted in error: no such key: nope"},
		"a condition fails, Ignore": {spec: plugin + "failurePolicy: Ignore\nmatchConditions: [{name: c, expression: 'object.spec.nope == 1'}]"},
		"another operation": {
			spec: plugin + "matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], resources: [services], operations: [UPDATE]}]}",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := plugintest.Ask(t, tc.spec, plugintest.Request{
				Object:   service,
				Resource: metav1.GroupVersionResource{Version: "v1", Resource: "services"},
			}, policy.Environment{})
			if got.Code != tc.wantCode || got.Message != tc.wantMessage {
				t.Errorf("%d %q, want %d %q", got.Code, got.Message, tc.wantCode, tc.wantMessage)
			}
			if warnings := strings.Join(got.Warnings, "\n"); warnings != tc.wantWarning {
				t.Errorf("warnings %q, want %q", warnings, tc.wantWarning)
			}
			var keys []string
			for key := range got.Annotations {
				keys = append(keys, key)
			}
			if diff := cmp.Diff(tc.log, strings.Join(keys, ",")); diff != "" {
				t.Errorf("audit annotations (-want +got):\n%s", diff)
			}
		})
	}
}

// TestWarnings: what a plugin warns of is said once, however many bindings
// match, and beside what the actions of a binding say of a refusal.
func TestWarnings(t *testing.T) {
	const (
		would = `would violate PodSecurity "restricted:latest": `
		did   = `pods "web" is forbidden: violates PodSecurity "baseline:latest": host namespaces (hostPID=true)`
	)
	tests := map[string]struct {
		config, pod, bindings string
		want                  []string // beginnings
	}{
		"two bindings": {
			config:   "{warn: restricted}",
			pod:      "{containers: [{name: a, image: a}]}",
			bindings: "[{name: a}, {name: b}]",
			want:     []string{would},
		},
		"Warn": {config: "{enforce: baseline, warn: privileged}", pod: "{hostPID: true, containers: [{name: a, image: a}]}",
			bindings: "[{name: a, validationActions: [Warn]}]",
			want:     []string{"Validation failed for WebhookPolicy 'p' with binding 'a': " + did}},
		"Warn in each of two": {config: "{enforce: baseline, warn: privileged}", pod: "{hostPID: true, containers: [{name: a, image: a}]}",
			bindings: "[{name: a, validationActions: [Warn]}, {name: b, validationActions: [Warn]}]",
			want: []string{
				"Validation failed for WebhookPolicy 'p' with binding 'a': " + did,
				"Validation failed for WebhookPolicy 'p' with binding 'b': " + did,
			}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			spec := "plugin: {name: PodSecurity, config: {defaults: " + tc.config + "}}\nbindings: " + tc.bindings
			got := plugintest.Ask(t, spec, plugintest.Request{Object: plugintest.Pod(tc.pod)},
				policy.Environment{Namespaces: plugintest.Namespaces{}})
			if got.Code != 0 || len(got.Warnings) != len(tc.want) {
				t.Fatalf("%d %q, warnings %q, want %q", got.Code, got.Message, got.Warnings, tc.want)
			}
			for i, w := range tc.want {
				if !strings.HasPrefix(got.Warnings[i], w) {
					t.Errorf("warning %q, want %q", got.Warnings[i], w)
				}
			}
		})
	}
}
