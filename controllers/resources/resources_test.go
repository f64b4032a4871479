package resources

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/ostiary/ostiary/internal/nativeengine"
	"github.com/ostiary/ostiary/test/controlplane"
	"github.com/ostiary/ostiary/test/controlplane/cptest"
)

const eventually = time.Minute

var apiServer *rest.Config

func TestMain(m *testing.M) {
	os.Exit(cptest.Main(m, controlplane.Options{NoControllerManager: true}, func(cp *controlplane.ControlPlane) { apiServer = cp.Config() }))
}

// start runs Resources until the test ends.
func start(t *testing.T, d Discovery) *Resources {
	t.Helper()
	r := New(d, logr.Discard())
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := r.Start(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { stop(); running.Wait() })
	NewWithT(t).Eventually(r.Ready).WithTimeout(eventually).Should(Succeed())
	return r
}

func newDiscovery() *discovery.DiscoveryClient {
	d := discovery.NewDiscoveryClientForConfigOrDie(apiServer)
	d.UseLegacyDiscovery = true
	return d
}

func addKind(t *testing.T, group string, versions ...string) {
	t.Helper()
	var list []any
	for i, v := range versions {
		list = append(list, map[string]any{
			"name": v, "served": true, "storage": i == 0,
			"subresources": map[string]any{"status": map[string]any{}},
			"schema":       map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}},
		})
	}
	crd := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "things." + group},
		"spec": map[string]any{
			"group": group, "scope": "Cluster", "versions": list,
			"names": map[string]any{"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
		},
	}}
	resource := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	if _, err := dynamic.NewForConfigOrDie(apiServer).Resource(resource).Create(t.Context(), crd, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	NewWithT(t).Eventually(func() error {
		for _, v := range versions {
			if _, err := newDiscovery().ServerResourcesForGroupVersion(group + "/" + v); err != nil {
				return err
			}
		}
		return nil
	}).WithTimeout(eventually).Should(Succeed())
}

func gvr(text string) schema.GroupVersionResource {
	parts := strings.Split(text, "/")
	if len(parts) == 2 {
		parts = append([]string{""}, parts...)
	}
	return schema.GroupVersionResource{Group: parts[0], Version: parts[1], Resource: parts[2]}
}

func short(list []schema.GroupVersionResource) []string {
	var out []string
	for _, r := range list {
		out = append(out, strings.TrimPrefix(r.Group+"/"+r.Version+"/"+r.Resource, "/"))
	}
	slices.Sort(out)
	return out
}

func TestEquivalents(t *testing.T) {
	addKind(t, "equivalents.test", "v1", "v1beta1")
	addKind(t, "other.equivalents.test", "v1")
	r := start(t, newDiscovery())
	things := []string{"equivalents.test/v1/things", "equivalents.test/v1beta1/things"}
	tests := map[string]struct {
		resource, subresource string
		want                  []string
		wantKind              string
	}{
		"one version": {resource: "v1/pods", want: []string{"v1/pods"}, wantKind: "/v1, Kind=Pod"},
		"two groups": {
			resource: "v1/events",
			want:     []string{"events.k8s.io/v1/events", "v1/events"},
			wantKind: "/v1, Kind=Event",
		},
		"the other of two groups": {
			resource: "events.k8s.io/v1/events",
			want:     []string{"events.k8s.io/v1/events", "v1/events"},
			wantKind: "events.k8s.io/v1, Kind=Event",
		},
		"two versions": {
			resource: "autoscaling/v2/horizontalpodautoscalers",
			want:     []string{"autoscaling/v1/horizontalpodautoscalers", "autoscaling/v2/horizontalpodautoscalers"},
			wantKind: "autoscaling/v2, Kind=HorizontalPodAutoscaler",
		},
		"subresource of two versions": {
			resource:    "autoscaling/v1/horizontalpodautoscalers",
			subresource: "status",
			want:        []string{"autoscaling/v1/horizontalpodautoscalers", "autoscaling/v2/horizontalpodautoscalers"},
			wantKind:    "autoscaling/v1, Kind=HorizontalPodAutoscaler",
		},
		"subresource with another kind": {
			resource:    "apps/v1/deployments",
			subresource: "scale",
			want:        []string{"apps/v1/deployments"},
			wantKind:    "autoscaling/v1, Kind=Scale",
		},
		"custom resource": {
			resource: "equivalents.test/v1beta1/things",
			want:     things,
			wantKind: "equivalents.test/v1beta1, Kind=Thing",
		},
		"custom resource, subresource": {
			resource:    "equivalents.test/v1/things",
			subresource: "status",
			want:        things,
			wantKind:    "equivalents.test/v1, Kind=Thing",
		},
		"equal name, other group": {
			resource: "other.equivalents.test/v1/things",
			want:     []string{"other.equivalents.test/v1/things"},
			wantKind: "other.equivalents.test/v1, Kind=Thing",
		},
		"unknown": {resource: "equivalents.test/v9/nothings"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, short(r.EquivalentResourcesFor(gvr(tc.resource), tc.subresource))); diff != "" {
				t.Errorf("equivalent resources (-want +got):\n%s", diff)
			}
			kind := r.KindFor(gvr(tc.resource), tc.subresource)
			if got := kind.String(); (kind.Empty() && tc.wantKind != "") || (!kind.Empty() && got != tc.wantKind) {
				t.Errorf("kind = %s, want %s", got, tc.wantKind)
			}
		})
	}
	if mapper := r.Interfaces(scheme.Scheme).GetEquivalentResourceMapper(); mapper != runtime.EquivalentResourceMapper(r) {
		t.Error("the interfaces do not know the equivalent resources")
	}
}

func TestKinds(t *testing.T) {
	r := start(t, newDiscovery())
	rule := func(group, version string, resources ...string) admissionregistrationv1.Rule {
		return admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{version}, Resources: resources}
	}
	tests := map[string]struct {
		rule  admissionregistrationv1.Rule
		limit int
		want  []string
	}{
		"one":                   {rule("apps", "v1", "deployments"), 10, []string{"apps/v1, Kind=Deployment"}},
		"subresource":           {rule("apps", "v1", "deployments/scale"), 10, []string{"autoscaling/v1, Kind=Scale"}},
		"with all subresources": {rule("apps", "v1", "deployments/*"), 10, []string{"apps/v1, Kind=Deployment", "autoscaling/v1, Kind=Scale"}},
		"any group":             {rule("*", "*", "events"), 10, []string{"/v1, Kind=Event", "events.k8s.io/v1, Kind=Event"}},
		"any resource, limited": {rule("apps", "*", "*"), 2, []string{"apps/v1, Kind=ControllerRevision", "apps/v1, Kind=DaemonSet"}},
		"none":                  {rule("apps", "v9", "deployments"), 10, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, kind := range r.Kinds(tc.rule, tc.limit) {
				got = append(got, kind.String())
			}
			slices.Sort(got)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("kinds (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNewResources(t *testing.T) {
	r := start(t, newDiscovery())
	changed := r.Subscribe(t.Context())
	addKind(t, "found.test", "v1")
	r.Need(true)
	g := NewWithT(t)
	g.Eventually(changed).WithTimeout(eventually).Should(Receive())
	g.Eventually(func() bool { return r.KindFor(gvr("found.test/v1/things"), "").Empty() }).WithTimeout(eventually).Should(BeFalse())
	addKind(t, "again.found.test", "v1")
	r.Refresh()
	g.Eventually(func() bool { return r.KindFor(gvr("again.found.test/v1/things"), "").Empty() }).WithTimeout(eventually).Should(BeFalse())
}

func TestServedNow(t *testing.T) {
	d := &flaky{DiscoveryClient: newDiscovery()}
	r := start(t, d)
	things := schema.GroupVersion{Group: "now.test", Version: "v1"}
	addKind(t, things.Group, things.Version)
	if len(r.ServedNow(t.Context())[things]) == 0 {
		t.Error("a new kind is not in the result")
	}
	if len(r.Served()[things]) == 0 {
		t.Error("the result is not cached")
	}

	before := d.groups()
	_ = r.ServedNow(t.Context())
	if asked := d.groups() - before; asked == 0 {
		t.Error("the result is from before the call")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	r.reading <- struct{}{}
	if r.ServedNow(ended) != nil {
		t.Error("got a result without a discovery")
	}
	<-r.reading
}

func TestServedBeforeTheStart(t *testing.T) {
	if New(newDiscovery(), logr.Discard()).Served() != nil {
		t.Error("got resources before the first discovery")
	}
}

// flaky is a Discovery that fails for some group versions.
type flaky struct {
	*discovery.DiscoveryClient
	mu     sync.Mutex
	broken map[string]bool
	asked  int // requests for groups
}

func (f *flaky) groups() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

func (f *flaky) ServerGroupsWithContext(ctx context.Context) (*metav1.APIGroupList, error) {
	f.mu.Lock()
	f.asked++
	f.mu.Unlock()
	return f.DiscoveryClient.ServerGroupsWithContext(ctx)
}

func (f *flaky) fail(groupVersions ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.broken = map[string]bool{}
	for _, gv := range groupVersions {
		f.broken[gv] = true
	}
}

func (f *flaky) ServerResourcesForGroupVersionWithContext(ctx context.Context, gv string) (*metav1.APIResourceList, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken[gv] {
		return nil, errors.New("service unavailable")
	}
	return f.DiscoveryClient.ServerResourcesForGroupVersionWithContext(ctx, gv)
}

func TestFailingGroupVersion(t *testing.T) {
	d := &flaky{DiscoveryClient: newDiscovery()}
	d.fail("batch/v1")
	r := start(t, d)
	if list, ok := r.Served()[schema.GroupVersion{Group: "batch", Version: "v1"}]; list != nil || !ok {
		t.Errorf("resources of the failing version = %v, %t; want nil, true", list, ok)
	}
	if !r.KindFor(gvr("batch/v1/jobs"), "").Empty() || r.KindFor(gvr("apps/v1/deployments"), "").Empty() {
		t.Error("want the kinds of the other versions only")
	}
	d.fail("apps/v1")
	r.Refresh()
	NewWithT(t).Eventually(func() bool { return r.KindFor(gvr("batch/v1/jobs"), "").Empty() }).WithTimeout(eventually).Should(BeFalse())
	if r.KindFor(gvr("apps/v1/deployments"), "").Empty() {
		t.Error("the cached kind is lost")
	}
}

func TestMatcher(t *testing.T) {
	r := start(t, newDiscovery())
	m := Matcher{Matcher: matching.NewMatcher(nil, kubernetes.NewForConfigOrDie(apiServer)), Resources: r}
	const unknown = "the resource new.test/v2, Resource=things is not known yet: retry after the next discovery, within a few seconds"
	tests := map[string]struct {
		policy                    admissionregistrationv1.MatchPolicyType
		group, version, resources string // of the rule
		objects                   *metav1.LabelSelector
		request                   string
		want                      bool
		wantErr                   string
	}{
		"named": {
			group:     "new.test",
			version:   "v2",
			resources: "things",
			request:   "new.test/v2/things",
			want:      true,
		},
		"equivalent": {
			group:     "autoscaling",
			version:   "v1",
			resources: "horizontalpodautoscalers",
			request:   "autoscaling/v2/horizontalpodautoscalers",
			want:      true,
		},
		"not equivalent": {
			group:     "autoscaling",
			version:   "v1",
			resources: "horizontalpodautoscalers",
			request:   "apps/v1/deployments",
		},
		"unknown, Exact": {
			policy:    admissionregistrationv1.Exact,
			group:     "new.test",
			version:   "v1",
			resources: "things",
			request:   "new.test/v2/things",
		},
		"unknown, other version": {
			group:     "new.test",
			version:   "v1",
			resources: "things",
			request:   "new.test/v2/things",
			wantErr:   unknown,
		},
		"unknown, other group": {
			group:     "old.test",
			version:   "v1",
			resources: "things",
			request:   "new.test/v2/things",
			wantErr:   unknown,
		},
		"unknown, any resource of the version": {
			group:     "new.test",
			version:   "v1",
			resources: "*",
			request:   "new.test/v2/things",
			wantErr:   unknown,
		},
		"unknown, any resource of another": {group: "apps", version: "v1", resources: "*", request: "new.test/v2/things"},
		"unknown, another resource": {
			group:     "new.test",
			version:   "v1",
			resources: "others",
			request:   "new.test/v2/things",
		},
		"unknown, labels do not match": {
			group:     "new.test",
			version:   "v1",
			resources: "things",
			objects:   &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
			request:   "new.test/v2/things",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if tc.policy == "" {
				tc.policy = admissionregistrationv1.Equivalent
			}
			resource := gvr(tc.request)
			object := &unstructured.Unstructured{Object: map[string]any{}}
			attr := admission.NewAttributesRecord(object, nil, schema.GroupVersionKind{}, "", "n", resource, "", admission.Create, nil, false, nil)
			got, _, _, err := m.Matches(attr, r.Interfaces(scheme.Scheme),
				nativeengine.Criteria{MatchResources: admissionregistrationv1.MatchResources{
					ObjectSelector: tc.objects,
					MatchPolicy:    &tc.policy,
					ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
						Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
						Rule: admissionregistrationv1.Rule{
							APIGroups:   []string{tc.group},
							APIVersions: []string{tc.version},
							Resources:   []string{tc.resources},
						},
					}}},
				}})
			if got != tc.want || (err == nil) != (tc.wantErr == "") || (err != nil && err.Error() != tc.wantErr) {
				t.Errorf("Matches() = %t, %v; want %t, %q", got, err, tc.want, tc.wantErr)
			}
		})
	}
}

func TestBeforeTheStart(t *testing.T) {
	r := New(newDiscovery(), logr.Discard())
	if r.Ready() == nil {
		t.Error("Ready() = nil before the resources have been read")
	}
	if got := fmt.Sprint(r.EquivalentResourcesFor(gvr("v1/pods"), ""), r.Kinds(admissionregistrationv1.Rule{}, 1)); got != "[] []" {
		t.Errorf("equivalent resources before the start: %s", got)
	}
}
