package integration

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ostiary/ostiary/internal/cli/policytest"
)

// libraryFolder has the policy library, in folders for categories.
const libraryFolder = "library/"

// TestLibrary sends the requests of all PolicyTests of the policy library to an API server
// with the manager and all policies of the category, and expects the violations in the
// audit log that kubectl-ostiary gives.
func TestLibrary(t *testing.T) {
	c := install(t)
	c.reviewing(t, true)
	c.prepareExamples(t)
	byCategory := librarySuites(t)
	for _, s := range byCategory["mutations"] {
		t.Run(s.Name, func(t *testing.T) { c.testExample(t, libraryExample(t, s)) })
	}
	delete(byCategory, "mutations")
	sent := 0
	for _, category := range slices.Sorted(maps.Keys(byCategory)) {
		t.Run(category, func(t *testing.T) { sent += c.testCategory(t, byCategory[category]) })
	}
	if len(byCategory) < 7 || sent < 300 {
		t.Errorf("sent %d requests to the policies of %d categories, want all", sent, len(byCategory))
	}
}

// librarySuites are the PolicyTests of the library, by category.
func librarySuites(t *testing.T) map[string][]*policytest.Suite {
	t.Helper()
	suites, err := policytest.Load(t.Context(), []string{"../../" + libraryFolder}, nil)
	must(t, err)
	out := map[string][]*policytest.Suite{}
	for _, s := range suites {
		category := path.Base(path.Dir(path.Dir(libraryDocument(s))))
		out[category] = append(out[category], s)
	}
	return out
}

// libraryDocument is the path of the policy that a suite tests.
func libraryDocument(s *policytest.Suite) string {
	test := s.Source.At("").File
	return libraryFolder + strings.SplitN(path.Join(path.Dir(test), s.Files[0]), "/"+libraryFolder, 2)[1]
}

func libraryExample(t *testing.T, s *policytest.Suite) example {
	t.Helper()
	e := example{Document: libraryDocument(s), Policy: s.Policies[0], Namespaces: map[string]exampleNamespace{}}
	for i, k := range s.Cases {
		e.addCase(t, k, fmt.Sprint("c", i))
		if k.Request.Namespace == "" {
			e.Cases[i].setNamespace("")
		}
	}
	return e
}

func (e *exampleEffect) setNamespace(name string) {
	for _, u := range []*unstructured.Unstructured{e.Before, e.Object} {
		if u != nil {
			u.SetNamespace(name)
		}
	}
}

// testCategory applies all policies of a category and sends the requests of their tests.
func (c *cluster) testCategory(t *testing.T, suites []*policytest.Suite) (sent int) {
	var manifests []string
	for _, s := range suites {
		text, err := os.ReadFile("../../" + libraryDocument(s))
		must(t, err)
		manifests = append(manifests, string(text))
	}
	if warnings := c.applied(t, manifests...); warnings != "" {
		t.Errorf("the policies are applied with warnings: %s", warnings)
	}
	for _, s := range suites {
		c.awaitReady(t, s.Name)
		t.Cleanup(func() { c.awaitPolicyGone(t, s.Name) })
		t.Cleanup(func() { c.discard(s.Name) })
	}
	for _, s := range suites {
		e := libraryExample(t, s)
		// Effects first: a request without one shows nothing until API servers call the policy.
		order := make([]int, len(e.Cases))
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(priority(e.Cases[a]), priority(e.Cases[b])) })
		for _, i := range order {
			sent++
			t.Run(s.Name+"/"+s.Cases[i].Name, func(t *testing.T) { c.testViolations(t, e, i, s.Cases[i]) })
		}
	}
	return sent
}

func priority(e exampleEffect) int {
	if e.hasEffect() {
		return 0
	}
	return 1
}

// refusedByAPIServer are the cases whose object an API server refuses itself.
func refusedByAPIServer() map[string]bool {
	return map[string]bool{
		// Only a Pod in a user namespace can have an unmasked /proc.
		"baseline-proc-mount/an unmasked /proc": true,
	}
}

// testViolations sends the request of a case, and compares the violations in the audit log.
func (c *cluster) testViolations(t *testing.T, e example, i int, k *policytest.Case) {
	result, err := k.Evaluate(t.Context())
	must(t, err)
	tt, key := e.Cases[i], fmt.Sprint("c", i)
	if e.Policy == "default-namespace" { // it is what the policy is for
		tt.setNamespace(strings.Replace(k.Request.Namespace, "web", "ns:"+key, 1))
	}
	names := c.exampleNamespaces(t, example{Namespaces: map[string]exampleNamespace{key: e.Namespaces[key]}})
	for _, u := range e.Given {
		if u.GetNamespace() == "ns:"+key {
			c.applied(t, inYAML(t, names.of(&u)))
		}
	}
	if tt.Before != nil {
		object := names.of(tt.Before)
		await(t).Eventually(func() error { return c.Create(t.Context(), object.DeepCopy()) }).Should(Succeed())
		t.Cleanup(func() { _ = c.Delete(context.Background(), object) })
	}
	want := violations(t, e.Policy, result.AuditAnnotations)
	a := c.impersonating(t, cmp.Or(tt.User, developer), tt.Groups...)
	await(t).Eventually(func() error {
		since := c.audit.mark(t)
		a.warnings = nil
		_, err := a.send(t.Context(), tt, names)
		if refusedByAPIServer()[k.String()] {
			if !apierrors.IsInvalid(err) {
				return fmt.Errorf("got %w, want the API server to refuse the object", err)
			}
			return nil
		}
		if err := tt.checkAnswer(err, a.warnings, e, names); err != nil {
			return err
		}
		if diff := gocmp.Diff(want, c.recorded(t, since, e.Policy)); diff != "" {
			return errors.New("violations (-kubectl-ostiary +API server):\n" + diff)
		}
		return nil
	}).Should(Succeed())
}

// recorded are the violations of a policy by the dry run since a mark.
func (c *cluster) recorded(t *testing.T, since int64, policy string) (out []string) {
	t.Helper()
	c.audit.mark(t)
	events, _ := c.audit.read(t, since)
	for _, e := range events {
		if strings.Contains(e.URI, "dryRun=All") && !strings.HasPrefix(e.ObjectRef.Name, "fence-") {
			out = append(out, violations(t, policy, e.Annotations)...)
		}
	}
	return out
}

// violations are the messages of a policy in audit annotations.
func violations(t *testing.T, policy string, annotations map[string]string) (out []string) {
	t.Helper()
	for key, value := range annotations {
		if path.Base(key) != "validation_failure" {
			continue
		}
		var failures []struct {
			Policy  string `json:"policy"`
			Message string `json:"message"`
		}
		must(t, json.Unmarshal([]byte(value), &failures))
		for _, f := range failures {
			if f.Policy == policy {
				out = append(out, f.Message)
			}
		}
	}
	return out
}
