package registration

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

const testCapability = "abcdefghijklmnopqrstuvwxyz234567"

func TestSplitPath(t *testing.T) {
	for name, tc := range map[string]struct{ path, want, wantRest string }{
		"a capability":             {"/" + testCapability + "/validate/x", testCapability, "/validate/x"},
		"no capability":            {"/validate/x", "", "/validate/x"},
		"too short":                {"/" + testCapability[1:] + "/validate/x", "", "/" + testCapability[1:] + "/validate/x"},
		"too long":                 {"/" + testCapability + "a/validate/x", "", "/" + testCapability + "a/validate/x"},
		"only a capability":        {"/" + testCapability, "", "/" + testCapability},
		"a capability and a slash": {"/" + testCapability + "/", testCapability, "/"},
		"empty":                    {"", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if capability, rest := SplitPath(tc.path); capability != tc.want || rest != tc.wantRest {
				t.Errorf("%q and %q, want %q and %q", capability, rest, tc.want, tc.wantRest)
			}
		})
	}
}

// The capability is in the paths of all generated configurations, and in no other
// field.
func TestCapabilityInConfigurations(t *testing.T) {
	for _, endpoint := range []Endpoint{testService, {URL: "https://ostiary.example.org:8443/"}} {
		policy := &v1alpha1.WebhookPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
		plan := func(capability string) []Configuration {
			own := Own{Endpoint: endpoint, Capability: capability, CABundle: []byte("x"), Epoch: 7, Owner: testOwner}
			configs := []Configuration{own.Review(), own.Canary(PhaseMutate, "ostiary-system"), own.Canary(PhaseValidate, "ostiary-system")}
			policy.Spec.Validations = []v1alpha1.Validation{{Expression: "true"}}
			for _, g := range Build(Input{Policies: []*v1alpha1.WebhookPolicy{policy}, Endpoint: endpoint, Capability: capability, CABundle: []byte("x")}).Groups {
				configs = append(configs, g.Configuration)
			}
			return configs
		}
		with, without := plan(testCapability), plan("")
		if len(with) != 4 {
			t.Fatalf("%d configurations, want 4", len(with))
		}
		for i, c := range with {
			if got := TrustIn([]Configuration{c}, endpoint).Capabilities; !cmp.Equal(got, []string{testCapability}) {
				t.Errorf("%s: capabilities %q", c.GetName(), got)
			}
			if text := fmt.Sprint(canonicalJSON(c)); strings.Count(text, testCapability) != len(Webhooks(c)) {
				t.Errorf("%s has the capability outside of its paths: %s", c.GetName(), text)
			}
			stripped := strings.ReplaceAll(canonicalJSON(c), "/"+testCapability, "")
			if diff := cmp.Diff(canonicalJSON(without[i]), stripped); diff != "" {
				t.Errorf("%s differs in other fields than paths:\n%s", c.GetName(), diff)
			}
		}
	}
}

func TestConceal(t *testing.T) {
	path := "/" + testCapability
	for name, tc := range map[string]struct{ text, want string }{
		"a failed call": {
			`failed calling webhook "x": failed to call webhook: Post "https://o.s.svc:443` + path + `/validate/fail-10s-x?timeout=5s": dial tcp: connection refused`,
			`failed calling webhook "x": failed to call webhook: Post "https://o.s.svc:443/.../validate/fail-10s-x?timeout=5s": dial tcp: connection refused`,
		},
		"a canary":                  {path + "/canary/mutate", "/.../canary/mutate"},
		"the review":                {path + "/validate-webhookpolicy", "/.../validate-webhookpolicy"},
		"two capabilities":          {path + "/mutate/a " + path + "/mutate/b", "/.../mutate/a /.../mutate/b"},
		"a path of another program": {"/v1/" + testCapability + "/x", "/v1/" + testCapability + "/x"},
		"no path":                   {"connection refused", "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Conceal(tc.text)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	invalid := apierrors.NewInvalid(schema.GroupKind{Group: "admissionregistration.k8s.io", Kind: "ValidatingWebhookConfiguration"}, "x", field.ErrorList{
		field.Invalid(field.NewPath("webhooks").Index(0).Child("clientConfig", "service", "path"), path+"/validate/x", "is rejected"),
	})
	err := ConcealError(fmt.Errorf("applying: %w", invalid))
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) {
		t.Fatalf("%v is not the API server's error", err)
	}
	if text := fmt.Sprintf("%+v %v %v", err, err, canonicalJSON(status.Status())); strings.Contains(text, testCapability) {
		t.Errorf("the error has the capability: %s", text)
	}
	if ConcealError(nil) != nil {
		t.Error("ConcealError(nil) is not nil")
	}
}
