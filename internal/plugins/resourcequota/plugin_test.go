package resourcequota_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/internal/plugins/resourcequota"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/test/plugintest"
)

type testCase struct {
	Name        string           `json:"name"`
	Limited     []any            `json:"limited"`
	Quotas      []map[string]any `json:"quotas"`
	Before      map[string]any   `json:"before"`
	Object      map[string]any   `json:"object"`
	Subresource string           `json:"subresource"`
	Want        string           `json:"want"`
}

func TestLimitedResources(t *testing.T) {
	var cases []testCase
	text, err := os.ReadFile("testdata/cases.yaml")
	if err == nil {
		err = yaml.UnmarshalStrict(text, &cases)
	}
	if err != nil || len(cases) < 60 {
		t.Fatalf("%d cases, %v", len(cases), err)
	}
	for _, tc := range cases {
		t.Run(tc.Name, func(t *testing.T) {
			object := &unstructured.Unstructured{Object: tc.Object}
			gvr, _ := meta.UnsafeGuessKindToResource(object.GroupVersionKind())
			r := plugintest.Request{Object: encode(t, tc.Object), Resource: metav1.GroupVersionResource(gvr), Subresource: tc.Subresource}
			if tc.Before != nil {
				r.Operation, r.OldObject = admissionv1.Update, encode(t, tc.Before)
			}
			quotas := plugintest.Objects{"ResourceQuota": {}}
			for _, q := range tc.Quotas {
				quotas["ResourceQuota"] = append(quotas["ResourceQuota"], encode(t, q))
			}
			got := plugintest.Ask(t, "plugin: {name: ResourceQuota, config: {limitedResources: "+encode(t, tc.Limited)+"}}", r,
				policy.Environment{Listed: quotas})
			want := ""
			if tc.Want != "" {
				resource := gvr.Resource
				if gvr.Group != "" {
					resource += "." + gvr.Group
				}
				want = resource + ` "web" is forbidden: ` + tc.Want
			}
			if got.Message != want || want != "" && (got.Code != 403 || got.Reason != metav1.StatusReasonForbidden) {
				t.Errorf("%d %s %q, want %q", got.Code, got.Reason, got.Message, want)
			}
		})
	}
}

func encode(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestUnknownQuotas: what cannot be known is no refusal, and follows failurePolicy;
// quotas are looked at only where something limited is consumed.
func TestUnknownQuotas(t *testing.T) {
	const spec = "plugin: {name: ResourceQuota, config: {limitedResources: [{resource: pods, matchContains: [cpu]}]}}\nfailurePolicy: "
	r := plugintest.Request{Object: plugintest.Pod("{containers: [{name: a, image: a, resources: {requests: {cpu: 1}}}]}")}
	host := policy.Environment{Listed: plugintest.Objects{}}
	if got := plugintest.Ask(t, spec+"Fail", plugintest.Request{
		Object: plugintest.Pod("{containers: [{name: a, image: a}]}"),
	}, host); got.Code != 0 {
		t.Errorf("nothing limited is consumed: %d %q", got.Code, got.Message)
	}
	if got := plugintest.Ask(t, spec+"Fail", r, host); got.Code != 422 || !strings.Contains(got.Message, "are still being listed") {
		t.Errorf("Fail: %d %q", got.Code, got.Message)
	}
	if got := plugintest.Ask(t, spec+"Ignore", r, host); got.Code != 0 {
		t.Errorf("Ignore: %d %q", got.Code, got.Message)
	}
}

func TestConfig(t *testing.T) {
	const at = "spec.plugin.config.limitedResources"
	tests := map[string]struct{ config, want string }{
		"the native file": {
			config: "{apiVersion: apiserver.config.k8s.io/v1, kind: ResourceQuotaConfiguration, limitedResources: [{resource: " +
				"pods, matchScopes: [{scopeName: PriorityClass, operator: In, values: [a]}]}]}",
		},
		"none": {
			config: "{}",
			want: at + ": Required value: add at least one resource, as {resource: persistentvolumeclaims, matchContains: " +
				"[.storageclass.storage.k8s.io/requests.storage]}",
		},
		"another kind": {
			config: "{kind: Configuration, limitedResources: [{resource: pods, matchContains: [a]}]}",
			want:   `spec.plugin.config.kind: Unsupported value: "Configuration": supported values: "ResourceQuotaConfiguration"`,
		},
		"no resource": {
			config: "{limitedResources: [{matchContains: [a]}]}",
			want:   at + "[0].resource: Required value: name a resource of the API, as pods",
		},
		"a wildcard": {
			config: "{limitedResources: [{resource: '*', matchContains: [a]}]}",
			want:   at + `[0].resource: Invalid value: "*": name one resource, without wildcards and subresources`,
		},
		"events": {
			config: "{limitedResources: [{resource: events, matchContains: [a]}]}",
			want:   at + "[0].resource: Forbidden: remove it: quotas are not for events",
		},
		"claims of devices": {
			config: "{limitedResources: [{resource: resourceclaims, apiGroup: resource.k8s.io, matchContains: [a]}]}",
			want:   at + "[0].resource: Forbidden: remove it: what resourceclaims consume is known to API servers alone",
		},
		"nothing is limited": {
			config: "{limitedResources: [{resource: pods}]}",
			want:   at + "[0]: Required value: say in matchContains or matchScopes what is limited: without them nothing is",
		},
		"no scopes": {
			config: "{limitedResources: [{resource: secrets, matchScopes: [{scopeName: BestEffort}]}]}",
			want:   at + "[0].matchScopes[0]: Forbidden: remove it: only pods and persistentvolumeclaims have scopes",
		},
		"another scope": {
			config: "{limitedResources: [{resource: persistentvolumeclaims, matchScopes: [{scopeName: BestEffort}]}]}",
			want:   at + `[0].matchScopes[0].scopeName: Unsupported value: "BestEffort": supported values: "VolumeAttributesClass"`,
		},
		"a scope with values": {
			config: "{limitedResources: [{resource: pods, matchScopes: [{scopeName: BestEffort, operator: In, values: [a]}]}]}",
			want: at + `[0].matchScopes[0].operator: Invalid value: "In": write Exists, without values: an object is in the ` +
				`scope BestEffort or not`,
		},
		"no operator": {
			config: "{limitedResources: [{resource: pods, matchScopes: [{scopeName: PriorityClass, values: [a]}]}]}",
			want:   at + `[0].matchScopes[0]: Invalid value: write In, NotIn, Exists or DoesNotExist as the operator instead of ""`,
		},
		"no values": {
			config: "{limitedResources: [{resource: pods, matchScopes: [{scopeName: PriorityClass, operator: In}]}]}",
			want:   at + "[0].matchScopes[0]: Invalid value: values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			text, err := yaml.YAMLToJSON([]byte(tc.config))
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if _, errs := resourcequota.Definition().New(text, field.NewPath("spec", "plugin", "config")); len(errs) > 0 {
				got = errs.ToAggregate().Error()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
}
