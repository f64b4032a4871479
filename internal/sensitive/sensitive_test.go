package sensitive

import (
	"os"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

func TestContains(t *testing.T) {
	tests := map[string]struct {
		more     []string
		resource string // with its group and subresource
		want     bool
	}{
		"Secrets":                     {resource: "secrets", want: true},
		"a subresource of Secrets":    {resource: "secrets/status", want: true},
		"secrets of another group":    {resource: "secrets.example.com"},
		"tokens of ServiceAccounts":   {resource: "serviceaccounts/token", want: true},
		"ServiceAccounts":             {resource: "serviceaccounts"},
		"reviews of tokens":           {resource: "tokenreviews.authentication.k8s.io", want: true},
		"reviews of another group":    {resource: "tokenreviews"},
		"a review's subresource":      {resource: "tokenreviews.authentication.k8s.io/status", want: true},
		"ConfigMaps":                  {resource: "configmaps"},
		"an additional resource":      {more: []string{"configmaps"}, resource: "configmaps", want: true},
		"one of a group":              {more: []string{"vaults.example.com"}, resource: "vaults.example.com/status", want: true},
		"its name in another group":   {more: []string{"vaults.example.com"}, resource: "vaults.example.org"},
		"an additional subresource":   {more: []string{"pods/exec"}, resource: "pods/exec", want: true},
		"its resource":                {more: []string{"pods/exec"}, resource: "pods"},
		"a group":                     {more: []string{"*.example.com"}, resource: "anything.example.com", want: true},
		"a group within it":           {more: []string{"*.example.com"}, resource: "anything.sub.example.com"},
		"subresources of a group":     {more: []string{"*.example.com/status"}, resource: "anything.example.com/status", want: true},
		"its resources":               {more: []string{"*.example.com/status"}, resource: "anything.example.com"},
		"defaults besides additional": {more: []string{"pods"}, resource: "secrets", want: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r, err := New(tc.more...)
			if err != nil {
				t.Fatal(err)
			}
			resource, subresource, _ := strings.Cut(tc.resource, "/")
			if got := r.Contains(schema.ParseGroupResource(resource), subresource); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}

func TestInvalidEntries(t *testing.T) {
	for _, text := range []string{"", "*", "*/status", "Secrets", "secrets.", "secrets/", "a/b/c", "a b", ".example.com", "*.*"} {
		if _, err := New("pods", text); err == nil || !strings.Contains(err.Error(), `"`+text+`" is no resource: write resource`) {
			t.Errorf("%q: %v, want an error with a fix", text, err)
		}
	}
}

// TestAuditReadsNothingSensitive: the role for the audit of stored objects has none of the defaults. Results of policies on
// an object answer questions about its values.
func TestAuditReadsNothingSensitive(t *testing.T) {
	text, err := os.ReadFile("../../config/rbac/audit_role.yaml")
	if err != nil {
		t.Fatal(err)
	}
	rules := 0
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal([]byte(document), &role); err != nil || role.Kind != "ClusterRole" {
			continue
		}
		for _, rule := range role.Rules {
			rules++
			for _, group := range rule.APIGroups {
				for _, text := range rule.Resources {
					resource, subresource, _ := strings.Cut(text, "/")
					if group == "*" || resource == "*" || (Resources{}).Contains(schema.GroupResource{Group: group, Resource: resource}, subresource) {
						t.Errorf("role %s has %s of group %q", role.Name, text, group)
					}
				}
			}
		}
	}
	if rules < 10 {
		t.Errorf("%d rules were read", rules)
	}
}
