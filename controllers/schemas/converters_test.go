package schemas

import (
	"context"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/resources"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/test/controlplane"
	"github.com/ostiary/ostiary/test/controlplane/cptest"
)

const (
	eventually = time.Minute
	pause      = 20 * time.Millisecond
)

var apiServer *rest.Config

func TestMain(m *testing.M) {
	os.Exit(cptest.Main(m, controlplane.Options{NoControllerManager: true}, func(cp *controlplane.ControlPlane) { apiServer = cp.Config() }))
}

var _ policy.TypeConverters = (*Converters)(nil)

// counting counts the reads of schemas.
type counting struct {
	patch.TypeConverterManager
	reads  atomic.Int64
	broken atomic.Bool
}

func (c *counting) GetTypeConverter(kind schema.GroupVersionKind) managedfields.TypeConverter {
	c.reads.Add(1)
	if c.broken.Load() {
		return nil
	}
	return c.TypeConverterManager.GetTypeConverter(kind)
}

// start runs Converters with the API server until the test ends.
func start(t *testing.T) (*Converters, *counting) {
	t.Helper()
	return startWith(t, logr.Discard())
}

func startWith(t *testing.T, log logr.Logger) (*Converters, *counting) {
	t.Helper()
	d := discovery.NewDiscoveryClientForConfigOrDie(apiServer)
	d.UseLegacyDiscovery = true
	known := resources.New(d, logr.Discard())
	known.Need(true)
	c := New(d.OpenAPIV3(), known, log)
	m := &counting{TypeConverterManager: c.manager}
	c.manager = m
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, run := range []func(context.Context) error{known.Start, c.Start} {
		running.Go(func() {
			if err := run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() { stop(); running.Wait() })
	return c, m
}

func mutation(kind admissionregistrationv1.PatchType) admissionregistrationv1.Mutation {
	return admissionregistrationv1.Mutation{PatchType: kind}
}

var apply = mutation(admissionregistrationv1.PatchTypeApplyConfiguration)

func mutating(group, version, resource string, mutations ...admissionregistrationv1.Mutation) *v1alpha1.WebhookPolicy {
	return &v1alpha1.WebhookPolicy{Spec: v1alpha1.WebhookPolicySpec{
		Mutations: mutations,
		MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
			RuleWithOperations: admissionregistrationv1.RuleWithOperations{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{version}, Resources: []string{resource}},
			},
		}}},
	}}
}

var crds = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

func crd(group, field string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "things." + group},
		"spec": map[string]any{
			"group": group, "scope": "Cluster",
			"names": map[string]any{"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{
					"openAPIV3Schema": map[string]any{
						"type":       "object",
						"properties": map[string]any{field: map[string]any{"type": "string"}},
					},
				},
			}},
		},
	}}
}

func missing(c *Converters, p *v1alpha1.WebhookPolicy) func() string {
	return func() string {
		missing, _ := c.Missing(p)
		return missing
	}
}

// TestReady checks that a replica is unready before schemas have been read, but not
// after the timeout. The Converters are not started.
func TestReady(t *testing.T) {
	c := New(nil, nil, logr.Discard())
	c.Want([]*v1alpha1.WebhookPolicy{mutating("apps", "v1", "deployments", apply)})
	if err := c.Ready(); err == nil || err.Error() != "the schemas of the kinds to mutate are being read" {
		t.Errorf("Ready() = %v before the first read", err)
	}
	over := make(chan time.Time)
	close(over)
	c.deadline = over
	for range 2 {
		if err := c.Ready(); err != nil {
			t.Errorf("Ready() = %v after the timeout", err)
		}
	}
}

func TestSchemasAreCached(t *testing.T) {
	c, m := start(t)
	deployments, scale := mutating("apps", "v1", "deployments", apply), mutating("apps", "v1", "deployments/scale", apply)
	everything := mutating("*", "*", "*", mutation(admissionregistrationv1.PatchTypeJSONPatch))
	if err := c.Ready(); err != nil {
		t.Errorf("Ready() = %v before Want", err)
	}
	c.Want([]*v1alpha1.WebhookPolicy{deployments, scale, everything, {Spec: v1alpha1.WebhookPolicySpec{}}})
	g := NewWithT(t)
	g.Eventually(c.Ready).WithTimeout(eventually).WithPolling(pause).Should(Succeed())
	for _, p := range []*v1alpha1.WebhookPolicy{deployments, scale, everything} {
		g.Eventually(missing(c, p)).WithTimeout(eventually).WithPolling(pause).Should(BeEmpty())
	}
	g.Eventually(func() bool {
		_, has := c.known.Load().find(schema.GroupVersionKind{Version: "v1", Kind: "Pod"})
		return has
	}).WithTimeout(eventually).WithPolling(pause).Should(BeTrue())
	// Requests cause no more reads.
	m.broken.Store(true)
	for _, kind := range []schema.GroupVersionKind{
		{Group: "apps", Version: "v1", Kind: "Deployment"}, {Group: "autoscaling", Version: "v1", Kind: "Scale"}, {Version: "v1", Kind: "Pod"},
	} {
		object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"replicas": int64(1)}}}
		if kind.Kind == "Pod" {
			delete(object.Object, "spec")
		}
		object.SetGroupVersionKind(kind)
		found := c.GetTypeConverter(kind)
		if found == nil {
			t.Fatalf("no schema of %s", kind)
		}
		if _, err := found.ObjectToTyped(object); err != nil {
			t.Errorf("%s does not fit its schema: %v", kind, err)
		}
	}
}

func TestSchemaThatIsNotCached(t *testing.T) {
	c, m := start(t)
	kind := schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}
	NewWithT(t).Eventually(func() bool { return c.GetTypeConverter(kind) != nil }).WithTimeout(eventually).Should(BeTrue())
	reads := m.reads.Load()
	var callers sync.WaitGroup
	for range 16 {
		callers.Go(func() {
			if c.GetTypeConverter(kind) == nil {
				t.Error("no schema of a cached kind")
			}
		})
	}
	callers.Wait()
	if now := m.reads.Load(); now > reads+5 {
		t.Errorf("%d reads of a cached schema", now-reads)
	}
	m.broken.Store(true)
	if c.GetTypeConverter(schema.GroupVersionKind{Group: "policy", Version: "v1", Kind: "Eviction"}) != nil {
		t.Error("a schema, although reads fail")
	}
}

func TestMissing(t *testing.T) {
	c, _ := start(t)
	const none = "the API server has none of the resources in spec.matchConstraints.resourceRules[0]: install the resource, or change the rule"
	json := mutation(admissionregistrationv1.PatchTypeJSONPatch)
	several := mutating("apps", "v1", "deployments", apply)
	several.Spec.MatchConstraints.ResourceRules[0].APIVersions = []string{"v1", "v1beta9"}
	tests := map[string]struct {
		policy *v1alpha1.WebhookPolicy
		want   string
	}{
		"known":                        {policy: mutating("", "v1", "pods", apply)},
		"no such resource":             {policy: mutating("none.test", "v1", "nothings", apply), want: none},
		"no such resource, JSON patch": {policy: mutating("none.test", "v1", "nothings", json), want: none},
		"one of two versions":          {policy: several},
		"wildcard":                     {policy: mutating("none.test", "*", "nothings", apply)},
		"kind without a schema": {
			policy: mutating("", "v1", "pods/exec", apply),
			want:   "the schema of PodExecOptions in v1 is missing: mutations of this kind fail until the API server publishes it",
		},
		"kind without a schema, JSON patch": {policy: mutating("", "v1", "pods/exec", json)},
		"no mutations":                      {policy: mutating("none.test", "v1", "nothings")},
	}
	var all []*v1alpha1.WebhookPolicy
	for _, tc := range tests {
		all = append(all, tc.policy)
	}
	c.Want(all)
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Eventually(missing(c, tc.policy)).WithTimeout(eventually).WithPolling(pause).Should(Equal(tc.want))
		})
	}
}

// TestMissingIsTransientAtFirst checks that missing schemas of a new generation are
// transient, and that subscribers are notified when that changes.
func TestMissingIsTransientAtFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(nil, resources.New(nil, logr.Discard()), logr.Discard())
		changed := c.Subscribe(t.Context())
		newPolicy := func(uid types.UID, generation int64) *v1alpha1.WebhookPolicy {
			p := mutating("none.test", "v1", "nothings", apply)
			p.UID, p.Generation = uid, generation
			return p
		}
		want := func(when string, p *v1alpha1.WebhookPolicy, transient bool) {
			t.Helper()
			if missing, got := c.Missing(p); missing == "" || got != transient {
				t.Errorf("%s: Missing() = %q, transient %t, want %t", when, missing, got, transient)
			}
		}
		wantNotified := func(when string, want bool) {
			t.Helper()
			c.read()
			select {
			case <-changed:
				if !want {
					t.Errorf("%s: notified without a change", when)
				}
			default:
				if want {
					t.Errorf("%s: not notified", when)
				}
			}
		}
		first := newPolicy("u", 1)
		c.Want([]*v1alpha1.WebhookPolicy{first})
		time.Sleep(readyTimeout - time.Second)
		want("while the replica starts", first, true)
		wantNotified("while the replica starts", false)
		time.Sleep(time.Second)
		want("later", first, false)
		wantNotified("later", true)
		wantNotified("later still", false)

		second, other := newPolicy("u", 2), newPolicy("v", 2)
		want("not wanted yet", second, true)
		c.Want([]*v1alpha1.WebhookPolicy{second, other})
		want("a new generation", second, true)
		wantNotified("a new generation", true)
		time.Sleep(grace - time.Nanosecond)
		c.Want([]*v1alpha1.WebhookPolicy{second})
		want("not long enough", second, true)
		wantNotified("not long enough", false)
		time.Sleep(time.Nanosecond)
		want("long enough", second, false)
		wantNotified("long enough", true)
		if len(c.since) != 1 {
			t.Errorf("%d policies are stored, want only the wanted one", len(c.since))
		}
	})
}

func TestKindInstalledLater(t *testing.T) {
	c, _ := start(t)
	p := mutating("later.schemas.test", "v1", "things", apply)
	c.Want([]*v1alpha1.WebhookPolicy{p})
	g := NewWithT(t)
	g.Eventually(c.Ready).WithTimeout(eventually).WithPolling(pause).Should(Succeed())
	g.Eventually(missing(c, p)).WithTimeout(eventually).WithPolling(pause).ShouldNot(BeEmpty())
	notified := c.Subscribe(t.Context())
	client := dynamic.NewForConfigOrDie(apiServer).Resource(crds)
	created, err := client.Create(t.Context(), crd("later.schemas.test", "before"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	g.Eventually(missing(c, p)).WithTimeout(eventually).WithPolling(pause).Should(BeEmpty())
	g.Eventually(notified).WithTimeout(eventually).Should(Receive())
	fits := func(field string) func() bool { return fits(t, c, p, field) }
	g.Eventually(fits("before")).WithTimeout(eventually).WithPolling(pause).Should(BeTrue())
	if fits("after")() {
		t.Error("a field that is not in the schema is accepted")
	}
	changed := crd("later.schemas.test", "after")
	changed.SetResourceVersion(created.GetResourceVersion())
	g.Eventually(func() error {
		now, err := client.Get(t.Context(), changed.GetName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		changed.SetResourceVersion(now.GetResourceVersion())
		_, err = client.Update(t.Context(), changed, metav1.UpdateOptions{})
		return err
	}).WithTimeout(eventually).Should(Succeed())
	g.Eventually(fits("after")).WithTimeout(eventually).WithPolling(pause).Should(BeTrue())
}

// fits reports whether the schema of things has a field.
func fits(t *testing.T, c *Converters, things *v1alpha1.WebhookPolicy, field string) func() bool {
	return func() bool {
		rule := things.Spec.MatchConstraints.ResourceRules[0]
		object := &unstructured.Unstructured{Object: map[string]any{"kind": "Thing", field: "x"}}
		object.SetAPIVersion(rule.APIGroups[0] + "/" + rule.APIVersions[0])
		found := c.GetTypeConverter(object.GroupVersionKind())
		if found == nil {
			return false
		}
		_, err := found.ObjectToTyped(object)
		if err != nil && !strings.Contains(err.Error(), field) {
			t.Errorf("unexpected error: %v", err)
		}
		return err == nil
	}
}
