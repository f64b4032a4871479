package policy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestNameObject(t *testing.T) {
	request := func(kind, resource, subresource, namespace, name string) *admissionv1.AdmissionRequest {
		return &admissionv1.AdmissionRequest{Kind: metav1.GroupVersionKind{Kind: kind}, Resource: metav1.GroupVersionResource{Resource: resource},
			SubResource: subresource, Namespace: namespace, Name: name}
	}
	for name, tc := range map[string]struct {
		warnings []string
		request  *admissionv1.AdmissionRequest
		want     []string
	}{
		"no warning": {request: request("Pod", "pods", "", "shop", "web")},
		"a Pod": {
			warnings: []string{"a", "b"},
			request:  request("Pod", "pods", "", "shop", "web"),
			want:     []string{"a (Pod shop/web)", "b (Pod shop/web)"},
		},
		"a cluster-scoped one": {warnings: []string{"a"}, request: request("Node", "nodes", "", "", "n"), want: []string{"a (Node n)"}},
		"a Namespace": {
			warnings: []string{"a"},
			request:  request("Namespace", "namespaces", "", "shop", "shop"),
			want:     []string{"a (Namespace shop)"},
		},
		"a subresource": {
			warnings: []string{"a"},
			request:  request("PodExecOptions", "pods", "exec", "shop", "web"),
			want:     []string{"a (pods/exec shop/web)"},
		},
		"a generated name": {warnings: []string{"a"}, request: request("Pod", "pods", "", "shop", ""), want: []string{"a (a Pod in shop)"}},
		"no name":          {warnings: []string{"a"}, request: request("Node", "nodes", "", "", ""), want: []string{"a (a Node)"}},
		"control characters": {
			warnings: []string{"a"},
			request:  request("Pod", "pods", "", "shop", "w\n\x1beb\xff"),
			want:     []string{"a (Pod shop/w  eb\uFFFD)"},
		},
		"a name that is too long": {
			warnings: []string{"a"}, request: request("Pod", "pods", "", "shop", strings.Repeat("x", 1<<20)),
			want: []string{"a (Pod shop/" + strings.Repeat("x", maxObject-len("shop/")-len("...")) + "...)"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := strings.Join(tc.warnings, ",")
			if diff := cmp.Diff(tc.want, NameObject(tc.warnings, tc.request)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if after := strings.Join(tc.warnings, ","); after != before {
				t.Errorf("the warnings %s were changed to %s", before, after)
			}
		})
	}
}
