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
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ostiary/ostiary/api/v1alpha1"
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
	delete(byCategory, "references") // see TestLookupsOfLibrary
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
	suites, err := policytest.Load(t.Context(), []string{"../../" + libraryFolder}, policytest.LoadOptions{})
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
	// Stored objects do not contain what such policies read, and Secrets are not read. On a loaded machine, some
	// policies are rehearsed only later.
	uncounted := regexp.MustCompile(`^Warning: existing objects that violate the policy are not counted(: its rules match only DELETE,` +
		`|: \S+ reads (authorizer|request\.userInfo)$|: \S+ compares oldObject with object,| \(Secrets\): Ostiary may not ` +
		`list them)|^Warning: not rehearsed: `)
	for line := range strings.SplitSeq(strings.TrimSpace(c.applied(t, manifests...)), "\n") {
		if line != "" && !uncounted.MatchString(line) {
			t.Errorf("the policies are applied with a warning: %s", line)
		}
	}
	for _, s := range suites {
		t.Cleanup(func() { c.awaitPolicyGone(t, s.Name) })
	}
	for _, s := range suites { // all of them are deleted before the first wait
		t.Cleanup(func() { c.discard(s.Name) })
	}
	for _, s := range suites {
		c.awaitReady(t, s.Name)
		c.awaitRehearsed(t, s.Name)
	}
	for _, s := range suites {
		sent += len(s.Cases)
		t.Run(s.Name, func(t *testing.T) { c.testSuite(t, s) })
	}
	return sent
}

// awaitRehearsed waits until a policy is rehearsed, and expects no finding.
func (c *cluster) awaitRehearsed(t *testing.T, name string) {
	t.Helper()
	var got metav1.Condition
	await(t).Eventually(func() (string, error) {
		p, err := c.policy(t.Context(), name)
		got = condition(p, v1alpha1.ConditionRehearsed)
		return got.Reason, err
	}).ShouldNot(BeEmpty())
	if got.Reason == "Findings" {
		t.Errorf("policy %s is rehearsed with findings: %s", name, got.Message)
	}
}

// libraryRequest is the request of a case, and the violations that it leads to.
type libraryRequest struct {
	exampleEffect
	test  *policytest.Case
	names replacements
	asker *asker
	agent string
	want  []string
	err   error
}

// testSuite sends the requests of all cases, and compares the violations in the audit log. It
// repeats that until API servers call the policy.
func (c *cluster) testSuite(t *testing.T, s *policytest.Suite) {
	e := libraryExample(t, s)
	var requests []*libraryRequest
	effects := 0
	for i, k := range s.Cases {
		r := c.prepareRequest(t, e, i, k)
		requests = append(requests, r)
		effects += len(r.want)
	}
	if effects == 0 {
		t.Error("no case has a violation")
	}
	await(t).Eventually(func() error {
		since := c.audit.mark(t)
		for _, r := range requests {
			r.asker.warnings = nil
			_, r.err = r.asker.send(t.Context(), r.exampleEffect, r.names)
		}
		c.audit.mark(t)
		events, _ := c.audit.read(t, since)
		var errs []error
		for _, r := range requests {
			if err := r.check(t, e, events); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", r.Name, err))
			}
		}
		return errors.Join(errs...)
	}).Should(Succeed())
}

// refusedByAPIServer are the cases whose object an API server refuses itself.
func refusedByAPIServer() map[string]bool {
	return map[string]bool{
		// Only a Pod in a user namespace can have an unmasked /proc.
		"baseline-proc-mount/an unmasked /proc":                              true,
		"baseline-proc-mount/a label of a Pod that is older than the policy": true,
		// It exists.
		"default-namespace/an object of the cluster": true,
	}
}

// prepareRequest creates what the request of a case needs.
func (c *cluster) prepareRequest(t *testing.T, e example, i int, k *policytest.Case) *libraryRequest {
	t.Helper()
	result, err := k.Evaluate(t.Context())
	must(t, err)
	key := fmt.Sprint("c", i)
	r := &libraryRequest{exampleEffect: e.Cases[i], test: k, agent: k.String(), want: violations(t, e.Policy, result.AuditAnnotations)}
	if e.Policy == "default-namespace" { // it is what the policy is for
		r.setNamespace(strings.Replace(k.Request.Namespace, "web", "ns:"+key, 1))
	}
	r.names = c.exampleNamespaces(t, example{Namespaces: map[string]exampleNamespace{key: e.Namespaces[key]}})
	for _, u := range e.Given {
		if u.GetNamespace() == "ns:"+key {
			c.applied(t, inYAML(t, r.names.of(&u)))
		}
	}
	if r.Before != nil && !refusedByAPIServer()[r.agent] {
		object := r.names.of(r.Before)
		// The ServiceAccount of a new namespace may not exist yet.
		await(t).Eventually(func() error { return c.Create(t.Context(), object.DeepCopy()) }).Should(Succeed())
		t.Cleanup(func() { _ = c.Delete(context.Background(), object) })
	}
	r.asker = c.impersonating(t, r.agent, cmp.Or(r.User, developer), r.Groups...)
	return r
}

// check compares the answer and the events of the audit log.
func (r *libraryRequest) check(t *testing.T, e example, events []auditEvent) error {
	t.Helper()
	if refusedByAPIServer()[r.agent] {
		if !apierrors.IsInvalid(r.err) && !apierrors.IsAlreadyExists(r.err) && !apierrors.IsNotFound(r.err) {
			return fmt.Errorf("got %w, want the API server to refuse the object", r.err)
		}
		return nil
	}
	// API servers warn about deprecated fields, too.
	warnings := slices.DeleteFunc(slices.Clone(r.asker.warnings), func(w string) bool { return !strings.Contains(w, "WebhookPolicy") })
	if err := r.checkAnswer(r.err, warnings, e, r.names); err != nil {
		return err
	}
	var got []string
	for _, event := range events {
		if event.UserAgent == r.agent {
			got = append(got, violations(t, e.Policy, event.Annotations)...)
		}
	}
	if diff := gocmp.Diff(r.want, got); diff != "" {
		return errors.New("violations (-kubectl-ostiary +API server):\n" + diff)
	}
	return nil
}

// violations are the messages of a policy in audit annotations.
func violations(t *testing.T, policy string, annotations map[string]string) (out []string) {
	t.Helper()
	for _, f := range failures(t, annotations) {
		if f.Policy == policy {
			out = append(out, f.Message)
		}
	}
	return out
}

// failure is a failed validation in an audit annotation.
type failure struct {
	Policy  string `json:"policy"`
	Message string `json:"message"`
}

// failures are those of all policies in audit annotations.
func failures(t *testing.T, annotations map[string]string) (out []failure) {
	t.Helper()
	for key, value := range annotations {
		if path.Base(key) != "validation_failure" {
			continue
		}
		var some []failure
		must(t, json.Unmarshal([]byte(value), &some))
		out = append(out, some...)
	}
	return out
}
