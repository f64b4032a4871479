package registration

import (
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

var testOwner = metav1.OwnerReference{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition", Name: "webhookpolicies.admission.ostiary.dev", UID: "uid-of-definition"}

func TestReviewGolden(t *testing.T) {
	for name, endpoint := range map[string]Endpoint{"service": testService, "url": {URL: "https://127.0.0.1:9443/"}} {
		t.Run(name, func(t *testing.T) {
			got, err := yaml.Marshal(Own{Endpoint: endpoint, CABundle: []byte("-----BEGIN CERTIFICATE-----\n"), Epoch: 7, Owner: testOwner}.Review())
			if err != nil {
				t.Fatal(err)
			}
			compareGolden(t, filepath.Join("testdata/review", name+".yaml"), got)
		})
	}
}

// The configuration belongs to no group: Diff does not delete it.
func TestReviewIsNotDeleted(t *testing.T) {
	own := Own{Endpoint: testService, CABundle: []byte("x"), Epoch: 7, Owner: testOwner}.Review()
	if changes := Diff(Plan{}, []Configuration{own}); !changes.Empty() {
		t.Errorf("Diff() = %+v, want nothing", changes)
	}
	if group, ok := GroupOf(own); ok {
		t.Errorf("GroupOf = %v, want none", group)
	}
}

func TestReviewMatches(t *testing.T) {
	want := Own{Endpoint: testService, CABundle: []byte("x"), Epoch: 7, Owner: testOwner}.Review()
	tests := map[string]struct {
		edit func(Configuration)
		want bool
	}{
		"no change":           {edit: func(Configuration) {}, want: true},
		"another label":       {edit: func(c Configuration) { c.GetLabels()["a"] = "b" }, want: true},
		"an additional owner": {edit: func(c Configuration) { c.SetOwnerReferences([]metav1.OwnerReference{{UID: "u"}, testOwner}) }, want: true},
		"no owner":            {edit: func(c Configuration) { c.SetOwnerReferences(nil) }},
		"another owner":       {edit: func(c Configuration) { c.SetOwnerReferences([]metav1.OwnerReference{{UID: "u"}}) }},
		"no label":            {edit: func(c Configuration) { c.SetLabels(nil) }},
		"no epoch":            {edit: func(c Configuration) { c.SetAnnotations(nil) }},
		"an older epoch":      {edit: func(c Configuration) { setEpoch(c, 6) }},
		"no webhook":          {edit: func(c Configuration) { setWebhooks(c, nil) }},
		"another bundle":      {edit: func(c Configuration) { w := Webhooks(c); w[0].ClientConfig.CABundle = []byte("y"); setWebhooks(c, w) }},
		"failurePolicy":       {edit: func(c Configuration) { w := Webhooks(c); *w[0].FailurePolicy = "Fail"; setWebhooks(c, w) }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			have := clone(want)
			tt.edit(have)
			if got := Matches(have, want) && Owned(have, want); got != tt.want {
				t.Errorf("Matches and Owned: %t, want %t", got, tt.want)
			}
		})
	}
}
