package integration

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/registration"
)

const versionedGroup = "versions.test"

// define applies a definition of custom resources. Its first version is stored; one that
// ends with "-" is not served.
func (c *cluster) define(t *testing.T, plural, kind string, versions ...string) {
	t.Helper()
	text := fmt.Sprintf(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %s.%s}
spec:
  group: %[2]s
  names: {kind: %s, plural: %[1]s}
  scope: Namespaced
  versions:
`, plural, versionedGroup, kind)
	for i, version := range versions {
		name, unserved := strings.CutSuffix(version, "-")
		text += fmt.Sprintf("  - {name: %s, served: %t, storage: %t, "+
			"schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}\n", name, !unserved, i == 0)
	}
	if _, errOut, err := c.kubectl(t.Context(), text, "apply", "-f", "-"); err != nil {
		t.Fatal(err, errOut)
	}
	t.Cleanup(func() {
		_, _, _ = c.kubectl(context.Background(), text, "delete", "--wait=false", "--ignore-not-found", "-f", "-")
	})
}

// versionSender sends objects in one version to one API server, and keeps which policies have
// seen which version: warnings reach the client from every call, denials only from one.
type versionSender struct {
	resource        schema.GroupVersionResource
	kind, namespace string
	client          dynamic.Interface

	mu       sync.Mutex
	seen     []string // by the current request
	answered int
}

var seenVersion = regexp.MustCompile(`WebhookPolicy '([^']+)'.*: sees ` + versionedGroup + `/(\S+)`)

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (s *versionSender) HandleWarningHeaderWithContext(_ context.Context, _ int, _ string, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := seenVersion.FindStringSubmatch(text); m != nil {
		s.seen = append(s.seen, m[1]+" "+m[2])
	}
}

func newVersionSender(t *testing.T, server *rest.Config, resource, kind, version, namespace string) *versionSender {
	t.Helper()
	s := &versionSender{
		resource: schema.GroupVersionResource{Group: versionedGroup, Version: version, Resource: resource},
		kind:     kind, namespace: namespace,
	}
	config := rest.CopyConfig(server)
	config.WarningHandler, config.WarningHandlerWithContext = nil, s
	var err error
	s.client, err = dynamic.NewForConfig(config)
	must(t, err)
	return s
}

// send sends one object, and returns what policies have seen of it, sorted.
func (s *versionSender) send(ctx context.Context) ([]string, error) {
	s.mu.Lock()
	s.seen = nil
	s.mu.Unlock()
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(s.resource.GroupVersion().WithKind(s.kind))
	object.SetNamespace(s.namespace)
	object.SetName("sent")
	_, err := s.client.Resource(s.resource).Namespace(s.namespace).
		Create(ctx, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.answered++
	}
	return slices.Sorted(slices.Values(s.seen)), err
}

func (s *versionSender) answers() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answered
}

// seeing returns a policy that reports the version of every object that it is evaluated on.
// An object that it is not evaluated on is refused if the call fails.
func seeing(name, namespace string, versions ...string) *v1alpha1.WebhookPolicy {
	return newPolicy(name, namespace, within(30), showing(`"sees " + object.apiVersion`), func(p *v1alpha1.WebhookPolicy) {
		r := rule(versionedGroup, "things", admissionregistrationv1.Create)
		r.Resources, r.APIVersions = []string{"things", "others"}, versions
		p.Spec.MatchConstraints.ResourceRules = []admissionregistrationv1.NamedRuleWithOperations{r}
		nowhere := &metav1.LabelSelector{MatchLabels: map[string]string{"nowhere": "yes"}}
		p.Spec.Bindings = []v1alpha1.Binding{
			{Name: "all", ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Warn}},
			{
				Name:              "none",
				ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
				MatchResources:    &admissionregistrationv1.MatchResources{NamespaceSelector: nowhere},
			},
		}
	})
}

// wantSeen returns which policies have to see an object that is sent in a version.
func wantSeen(resource, version string) []string {
	switch {
	case resource == "others": // there is only v2, which two of the policies do not name
		return []string{"any-version " + version}
	case version == "v1beta1":
		return []string{"any-version v1beta1", "one-version v1", "two-versions v1beta1"}
	}
	return []string{"any-version " + version, "one-version v1", "two-versions v1"}
}

// Promise: no request is missed, and none is evaluated in another version than the policy
// gets alone, while versions appear and disappear. Requests in v1 cost one call.
func TestNewVersionUnderLoad(t *testing.T) {
	c := install(t)
	m := c.manager(t)
	second, err := plane.AddAPIServer(t.Context(), "")
	must(t, err)
	t.Cleanup(func() { _ = plane.StopAPIServer(second) })
	namespace := c.namespace(t, nil)
	c.define(t, "things", "Thing", "v1")
	names := []string{"any-version", "one-version", "two-versions"}
	c.enforce(t, seeing(names[0], namespace, "*"), seeing(names[1], namespace, "v1"),
		seeing(names[2], namespace, "v1", "v1beta1"))
	c.checkOneCall(t, m, namespace, names)

	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	senders := map[string][]*versionSender{} // by resource and version, one for each API server
	for _, server := range []*rest.Config{plane.Config(0), plane.Config(second)} {
		for _, sent := range [][3]string{
			{"things", "Thing", "v1"}, {"things", "Thing", "v2"}, {"things", "Thing", "v1beta1"}, {"others", "Other", "v2"},
		} {
			s := newVersionSender(t, server, sent[0], sent[1], sent[2], namespace)
			senders[sent[0]+" "+sent[2]] = append(senders[sent[0]+" "+sent[2]], s)
			running.Go(func() { s.keepSending(ctx, t) })
		}
	}
	defer running.Wait()
	defer stop()
	awaitBoth := func(sent string) {
		t.Helper()
		for _, s := range senders[sent] {
			await(t).Eventually(s.answers).Should(BeNumerically(">", 10), "both API servers serve "+sent)
		}
	}
	awaitBoth("things v1")
	c.define(t, "things", "Thing", "v1", "v2")
	awaitBoth("things v2")
	c.define(t, "others", "Other", "v2")
	awaitBoth("others v2")
	c.define(t, "things", "Thing", "v1-", "v2", "v1beta1")
	awaitBoth("things v1beta1")
}

// keepSending sends objects until ctx ends. A version that is not served is not found.
func (s *versionSender) keepSending(ctx context.Context, t *testing.T) {
	t.Helper()
	for ctx.Err() == nil {
		got, err := s.send(ctx)
		if err == nil {
			if diff := cmp.Diff(wantSeen(s.resource.Resource, s.resource.Version), got); diff != "" {
				t.Errorf("%s in %s, as policies see it (-want +got):\n%s", s.resource.Resource, s.resource.Version, diff)
				return
			}
		}
		time.Sleep(interval)
	}
}

// checkOneCall checks that requests in v1 reach all policies with one call.
func (c *cluster) checkOneCall(t *testing.T, m *process, namespace string, names []string) {
	t.Helper()
	shared := map[string]int{}
	for _, name := range names {
		for _, config := range c.carriers(t, name) {
			if len(registration.Members(config)) == len(names) {
				shared[config.GetName()]++
			}
		}
	}
	if len(shared) != 1 {
		t.Fatalf("configurations %v have all policies, want one", shared)
	}
	calls := func() float64 { return m.series(t, `ostiary_webhook_http_requests_total{code="200",phase="validate"}`) }
	evaluations := func(name string) float64 {
		return m.series(t, fmt.Sprintf(
			`ostiary_policy_requests_total{decision="warn",operation="CREATE",policy=%q}`, name))
	}
	sender := newVersionSender(t, plane.Config(0), "things", "Thing", "v1", namespace)
	await(t).Eventually(func() ([]string, error) { return sender.send(t.Context()) }).
		Should(Equal(wantSeen("things", "v1")))
	before := calls()
	evaluated := map[string]float64{}
	for _, name := range names {
		evaluated[name] = evaluations(name)
	}
	const n = 10
	for range n {
		_, err := sender.send(t.Context())
		must(t, err)
	}
	if got := calls() - before; got != n {
		t.Errorf("%v calls for %d requests", got, n)
	}
	for _, name := range names {
		if got := evaluations(name) - evaluated[name]; got != n {
			t.Errorf("policy %s was evaluated %v times for %d requests", name, got, n)
		}
	}
}
