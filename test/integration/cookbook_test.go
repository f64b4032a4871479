package integration

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ostiary/ostiary/internal/cli/policytest"
	"github.com/ostiary/ostiary/test/documents"
)

const (
	cookbook = "docs/cookbook/"

	paramsOfConfigMaps = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: ostiary-params-configmaps, labels: {admission.ostiary.dev/aggregate-to-params: "true"}}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get, list, watch]}]
`
)

// TestCookbook sends the requests of the PolicyTests of all recipes to an API server with the
// manager, and expects the results of kubectl-ostiary. All recipes exist at the same time, so
// each matches only namespaces with a label of its own.
func TestCookbook(t *testing.T) {
	c := install(t)
	c.reviewing(t, true)
	c.prepareExamples(t)
	folder := t.TempDir()
	shown, err := documents.WriteTests(repository, folder)
	must(t, err)
	suites, err := policytest.Load(t.Context(), []string{folder}, policytest.LoadOptions{})
	must(t, err)
	var recipes []example
	var names []replacements
	applied := []string{paramsOfConfigMaps}
	for _, s := range suites {
		if shows := shown[s.Files[0]]; strings.HasPrefix(shows.Document, cookbook) {
			e := recipe(t, s, shows)
			recipes, names = append(recipes, e), append(names, c.prepareExample(t, e))
			applied = append(applied, inNamespacesOfRecipe(t, shows))
		}
	}
	if len(recipes) < 30 {
		t.Errorf("found %d recipes, want all", len(recipes))
	}
	c.applied(t, applied...)
	for i, e := range recipes {
		t.Run(e.Policy, func(t *testing.T) {
			c.awaitReady(t, e.Policy)
			c.testEffects(t, e, names[i])
		})
		t.Cleanup(func() { c.awaitPolicyGone(t, e.Policy) })
	}
	t.Cleanup(func() { // before the ones above
		for _, e := range recipes {
			c.discard(e.Policy)
		}
	})
}

const recipeLabel = "example.com/recipe"

func recipe(t *testing.T, s *policytest.Suite, shows documents.Example) example {
	t.Helper()
	e := example{Document: shows.Document, Policy: shows.Policy, Namespaces: map[string]exampleNamespace{}}
	for i, k := range s.Cases {
		key := fmt.Sprint("c", i)
		e.addCase(t, k, key)
		labels := map[string]string{recipeLabel: e.Policy}
		maps.Copy(labels, e.Namespaces[key].Labels)
		e.Namespaces[key] = exampleNamespace{Labels: labels, Annotations: e.Namespaces[key].Annotations}
	}
	return e
}

func inNamespacesOfRecipe(t *testing.T, shows documents.Example) string {
	t.Helper()
	policy := parseExample(t, shows.Manifest)
	must(t, unstructured.SetNestedField(policy.Object, shows.Policy, "spec", "matchConstraints", "namespaceSelector",
		"matchLabels", recipeLabel))
	return inYAML(t, policy)
}
