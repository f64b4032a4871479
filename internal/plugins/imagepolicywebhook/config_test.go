package imagepolicywebhook_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/internal/plugins/imagepolicywebhook"
)

// TestConfig has the native plugin's own cases of durations, and where the
// kubeconfig is.
func TestConfig(t *testing.T) {
	const (
		at     = "spec.plugin.config.imagePolicy."
		secret = "kubeConfigSecret: {name: s}, "
	)
	tests := map[string]struct{ settings, want string }{
		"defaults": {settings: secret},
		"none": {
			settings: "",
			want: at + "kubeConfigSecret: Required value: name a Secret in Ostiary's namespace with the kubeconfig of the " +
				"backend: {name: ostiary-image-policy, key: kubeconfig}",
		},
		"the native file": {
			settings: secret + "kubeConfigFile: /etc/kubeconfig",
			want: at + "kubeConfigFile: Forbidden: put what is in the file into a Secret in Ostiary's namespace, and name " +
				"that in kubeConfigSecret: {name: ostiary-image-policy, key: kubeconfig}",
		},
		"wrong name": {
			settings: "kubeConfigSecret: {name: a/b}",
			want: at + `kubeConfigSecret.name: Invalid value: "a/b": a lowercase RFC 1123 subdomain must consist of lower ` +
				`case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. ` +
				`'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`,
		},
		"wrong key": {
			settings: "kubeConfigSecret: {name: a, key: a/b}",
			want: at + `kubeConfigSecret.key: Invalid value: "a/b": a valid config key must consist of alphanumeric ` +
				`characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')`,
		},
		"all within bounds": {settings: secret + "allowTTL: 1800, denyTTL: 1, retryBackoff: 300000, defaultAllow: true"},
		"all off":           {settings: secret + "allowTTL: -1, denyTTL: -1, retryBackoff: -1"},
		"allowTTL too long": {
			settings: secret + "allowTTL: 1801",
			want:     at + "allowTTL: Invalid value: 1801: choose between 1 and 1800, -1 for none, or leave it out for 300",
		},
		"denyTTL too short": {
			settings: secret + "denyTTL: -2",
			want:     at + "denyTTL: Invalid value: -2: choose between 1 and 1800, -1 for none, or leave it out for 30",
		},
		"backoff too long": {
			settings: secret + "retryBackoff: 300001",
			want:     at + "retryBackoff: Invalid value: 300001: choose between 1 and 300000, -1 for none, or leave it out for 500",
		},
		"not a number": {
			settings: secret + "allowTTL: 5m",
			want:     at + "allowTTL: Invalid value: write a value that fits int64 instead of a string",
		},
		"another field": {
			settings: secret + "allowTtl: 5",
			want:     at + `allowTtl: Forbidden: remove it: unknown field "` + at + `allowTtl"`,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			text, err := yaml.YAMLToJSON([]byte("{imagePolicy: {" + tc.settings + "}}"))
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if _, errs := imagepolicywebhook.Definition().New(text, field.NewPath("spec", "plugin", "config")); len(errs) > 0 {
				got = errs.ToAggregate().Error()
			}
			if got != tc.want {
				t.Errorf("%s\nwant\n%s", got, tc.want)
			}
		})
	}
}
