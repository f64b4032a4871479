package denyserviceexternalips_test

import (
	"fmt"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/test/plugintest"
)

func TestExternalIPs(t *testing.T) {
	const denied = `services "web" is forbidden: Use of external IPs is denied by admission control`
	tests := map[string]struct {
		before string // of the stored Service; none is a CREATE
		after  string
		want   string
	}{
		"created without":      {after: "[]"},
		"created with one":     {after: "[1.1.1.1]", want: denied},
		"created with several": {after: "[1.1.1.1, 2.2.2.2]", want: denied},
		"none added":           {before: "[]", after: "[]"},
		"first added":          {before: "[]", after: "[1.1.1.1]", want: denied},
		"second added":         {before: "[1.1.1.1]", after: "[1.1.1.1, 2.2.2.2]", want: denied},
		"kept":                 {before: "[1.1.1.1]", after: "[1.1.1.1]"},
		"in another order":     {before: "[1.1.1.1, 2.2.2.2]", after: "[2.2.2.2, 1.1.1.1]"},
		"one removed":          {before: "[1.1.1.1, 2.2.2.2]", after: "[2.2.2.2]"},
		"all removed":          {before: "[1.1.1.1]", after: "[]"},
		"exchanged":            {before: "[1.1.1.1]", after: "[2.2.2.2]", want: denied},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := plugintest.Request{Object: service(tc.after), Resource: metav1.GroupVersionResource{Version: "v1", Resource: "services"}}
			if tc.before != "" {
				r.Operation, r.OldObject = admissionv1.Update, service(tc.before)
			}
			if got := plugintest.Ask(t, "plugin: {name: DenyServiceExternalIPs}", r,
				policy.Environment{}); got.Message != tc.want || tc.want != "" && got.Code != 403 {
				t.Errorf("%d %q, want %q", got.Code, got.Message, tc.want)
			}
		})
	}
}

func service(addresses string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {externalIPs: %s}}", addresses)
}
