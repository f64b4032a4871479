package exceptions

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/config/rbac"
)

// The guard has to be as it is installed: any other spec could permit more.
func TestGuard(t *testing.T) {
	documents := strings.Split(string(rbac.ExceptionPolicy), "\n---\n")
	stored := strings.NewReplacer(
		"    matchPolicy: Equivalent", "    matchPolicy: Equivalent\n    namespaceSelector: {}\n    objectSelector: {}",
		"      operations: [CREATE, UPDATE]", "      operations: [CREATE, UPDATE]\n      scope: '*'")
	for name, tc := range map[string]struct {
		document, old, new string
		want               bool
	}{
		"policy":               {document: documents[0], want: true},
		"policy with a label":  {document: documents[0], old: "  labels:\n", new: "  labels:\n    a: b\n", want: true},
		"failurePolicy":        {document: documents[0], old: "failurePolicy: Fail", new: "failurePolicy: Ignore"},
		"one kind":             {document: documents[0], old: "[webhookpolicyexceptions, ", new: "["},
		"CREATE only":          {document: documents[0], old: "[CREATE, UPDATE]", new: "[CREATE]"},
		"one version":          {document: documents[0], old: `["*"]`, new: "[v1alpha1]"},
		"Exact":                {document: documents[0], old: "Equivalent", new: "Exact"},
		"some namespaces":      {document: documents[0], old: "namespaceSelector: {}", new: "namespaceSelector: {matchLabels: {a: b}}"},
		"an excluded resource": {document: documents[0], old: "    matchPolicy:", new: "    excludeResourceRules: []\n    matchPolicy:"},
		"a match condition": {
			document: documents[0],
			old:      "  matchConditions:\n",
			new:      "  matchConditions:\n  - {name: a, expression: 'false'}\n",
		},
		"another verb":            {document: documents[0], old: "check('use')", new: "check('get')"},
		"a field of a later kind": {document: documents[0], old: "spec:\n", new: "spec:\n  future: true\n"},
		"binding":                 {document: documents[1], want: true},
		"binding that warns":      {document: documents[1], old: "[Deny]", new: "[Warn]"},
		"binding that matches":    {document: documents[1], old: "spec:\n", new: "spec:\n  matchResources: {}\n"},
		"binding of another":      {document: documents[1], old: "policyName: ostiary-policy-exceptions", new: "policyName: other"},
	} {
		t.Run(name, func(t *testing.T) {
			guards, err := newGuards(func() {})
			if err != nil || len(guards) != 2 {
				t.Fatalf("%d guards, %v", len(guards), err)
			}
			document := stored.Replace(tc.document)
			if tc.old != "" && !strings.Contains(document, tc.old) {
				t.Fatalf("%q is not there", tc.old)
			}
			object, err := yaml.YAMLToJSON([]byte(strings.Replace(document, tc.old, tc.new, 1)))
			if err != nil {
				t.Fatal(err)
			}
			g := guards[0]
			if tc.document == documents[1] {
				g = guards[1]
			}
			g.Contacted()
			g.BeginList()
			if err := g.Put(object, true); err != nil {
				t.Fatal(err)
			}
			g.EndList("1")
			if got := g.guards(); got != tc.want {
				t.Errorf("guards: %t, want %t", got, tc.want)
			}
			if err := g.Remove(object); err != nil || g.guards() {
				t.Errorf("guards after its deletion: %t, %v", g.guards(), err)
			}
		})
	}
}
