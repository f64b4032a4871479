package params

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/ostiary/ostiary/internal/cachebudget"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/test/controlplane"
	"github.com/ostiary/ostiary/test/controlplane/cptest"
)

const (
	eventually = 3 * time.Minute
	pause      = 20 * time.Millisecond
	testBudget = 64 << 20
)

var apiServer *rest.Config

func TestMain(m *testing.M) {
	os.Exit(cptest.Main(m, controlplane.Options{NoControllerManager: true}, func(cp *controlplane.ControlPlane) { apiServer = cp.Config() }))
}

var (
	_ policy.ParamReader = (*Store)(nil)
	_ policy.ParamKinds  = (*Store)(nil)
)

// newStore returns a running Store for a user; "" is the administrator.
func newStore(t *testing.T, user string) *Store {
	t.Helper()
	return newStoreThrough(t, user, nil)
}

// newStoreThrough returns a Store whose requests pass through a wrapper.
func newStoreThrough(t *testing.T, user string, wrap transport.WrapperFunc) *Store {
	t.Helper()
	config := rest.CopyConfig(apiServer)
	config.Wrap(wrap)
	if user != "" {
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	}
	s := New(Options{
		Client:     dynamic.NewForConfigOrDie(config),
		REST:       kubernetes.NewForConfigOrDie(config).CoreV1().RESTClient(),
		Memory:     NewMemory(cachebudget.New(testBudget), nil),
		Account:    "ostiary-system/ostiary-params",
		Aggregated: true,
		Discovery:  discovery.NewDiscoveryClientForConfigOrDie(config),
		Name:       "params",
		Log:        funcr.New(func(prefix, args string) { fmt.Fprintln(t.Output(), prefix, args) }, funcr.Options{}),
		Registerer: prometheus.NewRegistry(),
	})
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Start(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { stop(); running.Wait() })
	return s
}

func admin(t *testing.T) kubernetes.Interface {
	t.Helper()
	return kubernetes.NewForConfigOrDie(apiServer)
}

func newNamespace(t *testing.T) string {
	t.Helper()
	ns, err := admin(t).CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "params-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return ns.Name
}

func addConfigMap(t *testing.T, namespace, name string, labels map[string]string) {
	t.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Data: map[string]string{"key": name}}
	if _, err := admin(t).CoreV1().ConfigMaps(namespace).Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

var crds = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// addKind installs the kind Rule in a group.
func addKind(t *testing.T, group, scope string) {
	t.Helper()
	crd := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "rules." + group},
		"spec": map[string]any{
			"group": group, "scope": scope,
			"names": map[string]any{"plural": "rules", "singular": "rule", "kind": "Rule", "listKind": "RuleList"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			}},
		},
	}}
	if _, err := dynamic.NewForConfigOrDie(apiServer).Resource(crds).Create(t.Context(), crd, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func addRule(t *testing.T, group, namespace, name string) {
	t.Helper()
	rule := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": group + "/v1", "kind": "Rule", "metadata": map[string]any{"name": name}, "limit": int64(3),
	}}
	client := dynamic.NewForConfigOrDie(apiServer).Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: "rules"})
	NewWithT(t).Eventually(func() error {
		_, err := client.Namespace(namespace).Create(t.Context(), rule, metav1.CreateOptions{})
		return err
	}).WithTimeout(eventually).WithPolling(pause).Should(Succeed())
}

var configMaps = admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}

// whole are the needs of policies that read all objects of kinds.
func whole(kinds ...admissionregistrationv1.ParamKind) (out []policy.ParamNeed) {
	for _, kind := range kinds {
		out = append(out, policy.ParamNeed{Kind: kind, Reads: policy.WholeParams()})
	}
	return out
}

// watchOf returns the only watch of a kind.
func watchOf(t *testing.T, s *Store, kind admissionregistrationv1.ParamKind) *watch {
	t.Helper()
	watches, err := s.watchesOf(&kind, nil)
	if err != nil || len(watches) != 1 {
		t.Fatalf("%d watches, %v, want 1", len(watches), err)
	}
	return watches[0]
}

func ruleKind(group string) admissionregistrationv1.ParamKind {
	return admissionregistrationv1.ParamKind{APIVersion: group + "/v1", Kind: "Rule"}
}

func synced(t *testing.T, s *Store, kind admissionregistrationv1.ParamKind) {
	t.Helper()
	NewWithT(t).Eventually(func() error {
		if ok, problem := s.State(&kind); !ok {
			return fmt.Errorf("not synced: %s", problem)
		}
		return nil
	}).WithTimeout(eventually).WithPolling(pause).Should(Succeed())
}

func problemOf(t *testing.T, s *Store, kind admissionregistrationv1.ParamKind, want string) {
	t.Helper()
	NewWithT(t).Eventually(func() string {
		_, problem := s.State(&kind)
		return problem
	}).WithTimeout(eventually).WithPolling(pause).Should(Equal(want))
}

func ref(namespace, name string, mods ...func(*admissionregistrationv1.ParamRef)) *admissionregistrationv1.ParamRef {
	action := admissionregistrationv1.AllowAction
	r := &admissionregistrationv1.ParamRef{Namespace: namespace, Name: name, ParameterNotFoundAction: &action}
	for _, mod := range mods {
		mod(r)
	}
	return r
}

func selecting(labels map[string]string) func(*admissionregistrationv1.ParamRef) {
	return func(r *admissionregistrationv1.ParamRef) { r.Selector = &metav1.LabelSelector{MatchLabels: labels} }
}

func denying(r *admissionregistrationv1.ParamRef) {
	action := admissionregistrationv1.DenyAction
	r.ParameterNotFoundAction = &action
}

// names returns "namespace/name" of the params and checks that each is complete.
func names(t *testing.T, found []runtime.Object) []string {
	t.Helper()
	var out []string
	for _, o := range found {
		u, ok := o.(*unstructured.Unstructured)
		if !ok {
			t.Fatalf("a param is a %T", o)
		}
		if u.GetKind() == "" || u.GetAPIVersion() == "" {
			t.Errorf("a param without a kind: %v", u.Object)
		}
		if u.GetManagedFields() != nil {
			t.Error("a param with managed fields")
		}
		out = append(out, u.GetNamespace()+"/"+u.GetName())
	}
	return out
}

func TestParams(t *testing.T) {
	s := newStore(t, "")
	one, two := newNamespace(t), newNamespace(t)
	const group = "cluster.params.test"
	addKind(t, group, "Cluster")
	addRule(t, group, "", "global")
	blue := map[string]string{"colour": "blue", "test": one}
	for _, name := range []string{"c", "a", "b"} {
		addConfigMap(t, one, name, blue)
	}
	addConfigMap(t, two, "z", blue)
	s.Want(whole(configMaps, ruleKind(group), configMaps))
	synced(t, s, configMaps)
	synced(t, s, ruleKind(group))
	tests := map[string]struct {
		kind      admissionregistrationv1.ParamKind
		ref       *admissionregistrationv1.ParamRef
		namespace string // of the request
		want      []string
		wantErr   string
	}{
		"by name, in the request's namespace":   {kind: configMaps, ref: ref("", "a"), namespace: one, want: []string{one + "/a"}},
		"by name, in the ref's namespace":       {kind: configMaps, ref: ref(two, "z"), namespace: one, want: []string{two + "/z"}},
		"by name, for a cluster-scoped request": {kind: configMaps, ref: ref(two, "z"), want: []string{two + "/z"}},
		"by selector, in the order of names":    {kind: configMaps, ref: ref("", "", selecting(blue)), namespace: one, want: []string{one + "/a", one + "/b", one + "/c"}},
		"empty selector matches all":            {kind: configMaps, ref: ref("", "", selecting(nil)), namespace: two, want: []string{two + "/z"}},
		"name not found, Allow":                 {kind: configMaps, ref: ref("", "missing"), namespace: one},
		"name not found, Deny":                  {kind: configMaps, ref: ref("", "missing", denying), namespace: one, wantErr: "no params found for policy binding with `Deny` parameterNotFoundAction"},
		"selector without a match, Allow":       {kind: configMaps, ref: ref("", "", selecting(map[string]string{"colour": "red"})), namespace: one},
		"selector without a match, Deny":        {kind: configMaps, ref: ref("", "", selecting(map[string]string{"colour": "red"}), denying), namespace: one, wantErr: "no params found for policy binding with `Deny` parameterNotFoundAction"},
		"no namespace":                          {kind: configMaps, ref: ref("", "a"), wantErr: "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"},
		"cluster-scoped kind":                   {kind: ruleKind(group), ref: ref("", "global"), namespace: one, want: []string{"/global"}},
		"cluster-scoped kind in a namespace":    {kind: ruleKind(group), ref: ref(one, "global"), namespace: one, wantErr: "paramRef.namespace must not be provided for a cluster-scoped `paramKind`"},
		"kind that is not wanted":               {kind: admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "Secret"}, ref: ref("", "a"), namespace: one, wantErr: "objects of kind Secret in v1 are not watched yet"},
		"invalid kind":                          {kind: admissionregistrationv1.ParamKind{APIVersion: "a/b/c", Kind: "X"}, ref: ref("", "a"), namespace: one, wantErr: `spec.paramKind is not a kind: specify apiVersion as "group/version" or "v1", and kind`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := s.Params(t.Context(), &tc.kind, tc.ref, tc.namespace)
			if message := textOf(err); message != tc.wantErr {
				t.Fatalf("error = %q, want %q", message, tc.wantErr)
			}
			if diff := cmp.Diff(tc.want, names(t, got)); diff != "" {
				t.Errorf("params (-want +got):\n%s", diff)
			}
		})
	}
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestParamThatIsNotCached(t *testing.T) {
	s := newStore(t, "")
	namespace := newNamespace(t)
	s.Want(whole(configMaps))
	synced(t, s, configMaps)
	// Remove an object from the cache that exists in the API server.
	addConfigMap(t, namespace, "new", nil)
	known := watchOf(t, s, configMaps).known.Load()
	NewWithT(t).Eventually(func() error {
		_, err := known.Lister().ByNamespace(namespace).Get("new")
		return err
	}).WithTimeout(eventually).WithPolling(pause).Should(Succeed())
	cached, err := s.Params(t.Context(), &configMaps, ref(namespace, "new"), "")
	if err != nil {
		t.Fatal(err)
	}
	known.objects.remove(namespace, "new")
	live, err := s.Params(t.Context(), &configMaps, ref(namespace, "new", denying), "")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(cached, live); diff != "" {
		t.Errorf("an object of the cache and one past it (-cache +live):\n%s", diff)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if got, err := s.Params(ended, &configMaps, ref(namespace, "new"), ""); !errors.Is(err, context.Canceled) {
		t.Errorf("Params() = %v, %v for a request that has ended", got, err)
	}
}

func TestParamsChange(t *testing.T) {
	s := newStore(t, "")
	namespace := newNamespace(t)
	addConfigMap(t, namespace, "c", nil)
	s.Want(whole(configMaps))
	synced(t, s, configMaps)
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Data: map[string]string{"key": "changed"}}
	if _, err := admin(t).CoreV1().ConfigMaps(namespace).Update(t.Context(), object, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	NewWithT(t).Eventually(func() (string, error) {
		got, err := s.Params(t.Context(), &configMaps, ref(namespace, "c", denying), "")
		if err != nil {
			return "", err
		}
		value, _, err := unstructured.NestedString(got[0].(*unstructured.Unstructured).Object, "data", "key")
		return value, err
	}).WithTimeout(eventually).WithPolling(pause).Should(Equal("changed"))
}

func TestNotFound(t *testing.T) {
	s := newStore(t, "")
	namespace := newNamespace(t)
	s.Want(whole(configMaps))
	synced(t, s, configMaps)
	changes := s.Subscribe(t.Context())
	notFound := func(ref *admissionregistrationv1.ParamRef) func() string {
		return func() string { return s.NotFound(&configMaps, ref) }
	}
	await := func(ref *admissionregistrationv1.ParamRef, want string) {
		t.Helper()
		NewWithT(t).Eventually(notFound(ref)).WithTimeout(eventually).WithPolling(pause).Should(Equal(want))
		NewWithT(t).Eventually(changes).WithTimeout(eventually).Should(Receive(), "the change is reported")
	}
	addConfigMap(t, namespace, "there", map[string]string{"a": "b"})
	await(ref(namespace, "there"), "")
	for want, ref := range map[string]*admissionregistrationv1.ParamRef{
		"ConfigMap " + namespace + "/x does not exist":                           ref(namespace, "x"),
		"no namespace has a ConfigMap nowhere":                                   ref("", "nowhere"),
		"no ConfigMap in namespace " + namespace + ` matches the selector "a=c"`: ref(namespace, "", selecting(map[string]string{"a": "c"})),
	} {
		if got := notFound(ref)(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	for name, ref := range map[string]*admissionregistrationv1.ParamRef{
		"in any namespace": ref("", "there"),
		"selected":         ref(namespace, "", selecting(map[string]string{"a": "b"})),
	} {
		if got := notFound(ref)(); got != "" {
			t.Errorf("%s: got %q for a ConfigMap that exists", name, got)
		}
	}
	if err := admin(t).CoreV1().ConfigMaps(namespace).Delete(t.Context(), "there", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(ref(namespace, "there"), "ConfigMap "+namespace+"/there does not exist")
}

func TestKindInstalledLater(t *testing.T) {
	s := newStore(t, "")
	const group = "later.params.test"
	kind := ruleKind(group)
	changed := s.Subscribe(t.Context())
	s.Want(whole(kind))
	const unknown = "the API server has no kind Rule in later.params.test/v1: install it, or change spec.paramKind"
	problemOf(t, s, kind, unknown)
	NewWithT(t).Eventually(changed).WithTimeout(eventually).Should(Receive())
	if err := s.Ready(); err != nil {
		t.Errorf("Ready() = %v: a missing kind makes the replica unready", err)
	}
	if _, err := s.Params(t.Context(), &kind, ref("", "a"), "default"); textOf(err) != unknown {
		t.Errorf("Params() error = %q, want %q", textOf(err), unknown)
	}
	addKind(t, group, "Namespaced")
	synced(t, s, kind)
	addRule(t, group, "default", "a")
	got, err := s.Params(t.Context(), &kind, ref("", "a", denying), "default")
	if err != nil {
		t.Fatal(err)
	}
	if limit, _, _ := unstructured.NestedInt64(got[0].(*unstructured.Unstructured).Object, "limit"); limit != 3 {
		t.Errorf("limit = %d, want 3", limit)
	}
}

// A paramKind without a paramRef has to exist. No policy needs the permission to read it.
func TestKindThatIsNotRead(t *testing.T) {
	s := newStore(t, "no-policy")
	const group = "unread.params.test"
	missing, existing := ruleKind(group), admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
	s.Want(nil, missing, existing)
	synced(t, s, existing)
	if err := s.CheckKind(t.Context(), &existing); err != nil {
		t.Errorf("CheckKind() = %v for ConfigMaps", err)
	}
	const unknown = "the API server has no kind Rule in unread.params.test/v1: install it, or change spec.paramKind"
	problemOf(t, s, missing, unknown)
	if err := s.CheckKind(t.Context(), &missing); textOf(err) != unknown {
		t.Errorf("CheckKind() = %v, want %q", err, unknown)
	}
	addKind(t, group, "Namespaced")
	synced(t, s, missing)
	if err := s.CheckKind(t.Context(), &missing); err != nil {
		t.Errorf("CheckKind() = %v after the kind was installed", err)
	}
	s.Want(whole(existing)) // a binding gets a paramRef
	problemOf(t, s, existing, `Ostiary may not read objects of kind ConfigMap in v1: create a ClusterRole with the label admission.ostiary.dev/aggregate-to-params: "true" and the rule {apiGroups: [""], resources: ["configmaps"], verbs: [get, list, watch]}`)
}

func TestKindReplacedWithAnotherScope(t *testing.T) {
	s := newStore(t, "")
	const group = "again.params.test"
	kind := ruleKind(group)
	addKind(t, group, "Namespaced")
	s.Want(whole(kind))
	synced(t, s, kind)
	if err := dynamic.NewForConfigOrDie(apiServer).Resource(crds).Delete(t.Context(), "rules."+group, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	problemOf(t, s, kind, "the API server has no kind Rule in again.params.test/v1: install it, or change spec.paramKind")
	addKind(t, group, "Cluster")
	addRule(t, group, "", "a")
	NewWithT(t).Eventually(func() (int, error) {
		got, err := s.Params(t.Context(), &kind, ref("", "a"), "")
		return len(got), err
	}).WithTimeout(eventually).WithPolling(pause).Should(Equal(1))
	synced(t, s, kind)
}

func TestForbiddenKind(t *testing.T) {
	const user = "params-forbidden"
	s := newStore(t, user)
	namespace := newNamespace(t)
	addConfigMap(t, namespace, "c", nil)
	s.Want(whole(configMaps))
	const want = `Ostiary may not read objects of kind ConfigMap in v1: create a ClusterRole with the label admission.ostiary.dev/aggregate-to-params: "true" and the rule {apiGroups: [""], resources: ["configmaps"], verbs: [get, list, watch]}`
	problemOf(t, s, configMaps, want)
	if err := s.Ready(); err != nil {
		t.Errorf("Ready() = %v: a forbidden kind makes the replica unready", err)
	}
	if _, err := s.Params(t.Context(), &configMaps, ref(namespace, "c"), ""); textOf(err) != want {
		t.Errorf("Params() error = %q", textOf(err))
	}
	rule := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list", "watch"}}
	grant(t, user, rule)
	synced(t, s, configMaps)
	got, err := s.Params(t.Context(), &configMaps, ref(namespace, "c"), "")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{namespace + "/c"}, names(t, got)); diff != "" {
		t.Errorf("params (-want +got):\n%s", diff)
	}
	// The rule in the message includes get: without it, an object that is not cached
	// yet looks like one that does not exist.
	if _, err := s.Params(t.Context(), &configMaps, ref(namespace, "missing"), ""); err == nil {
		t.Error("a forbidden param counts as not found")
	}
	problemOf(t, s, configMaps, want)
	rule.Verbs = []string{"get"}
	grant(t, user, rule)
	NewWithT(t).Eventually(func() error {
		_, err := s.Params(t.Context(), &configMaps, ref(namespace, "missing"), "")
		return err
	}).WithTimeout(eventually).WithPolling(pause).Should(Succeed())
	synced(t, s, configMaps)
}

func grant(t *testing.T, user string, rule rbacv1.PolicyRule) {
	t.Helper()
	client := admin(t).RbacV1()
	role, err := client.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: user + "-"}, Rules: []rbacv1.PolicyRule{rule}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func TestUnwantedKindIsNotWatched(t *testing.T) {
	s := newStore(t, "")
	s.Want(whole(configMaps, admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ServiceAccount"}))
	synced(t, s, configMaps)
	watched := watchOf(t, s, configMaps)
	s.Want(whole(configMaps))
	if watchOf(t, s, configMaps) != watched {
		t.Error("the watch of a wanted kind was restarted")
	}
	s.Want(nil)
	NewWithT(t).Eventually(func() int64 { return s.options.Memory.budget.Used()["params"] }).WithTimeout(eventually).WithPolling(pause).Should(BeZero())
	if watched.wanted() {
		t.Error("the watch of an unwanted kind continues")
	}
	if _, err := s.Params(t.Context(), &configMaps, ref("", "a"), "default"); err == nil {
		t.Error("Params() succeeded for an unwatched kind")
	}
	s.Want(whole(configMaps))
	synced(t, s, configMaps)
}

func TestInformersMetric(t *testing.T) {
	registry := prometheus.NewRegistry()
	s := New(Options{Client: dynamic.NewForConfigOrDie(apiServer), Discovery: silent{}, Registerer: registry})
	defer s.stop()
	s.Want(whole(configMaps))
	want := "# HELP ostiary_params_informers Watches of params on this replica, including those that it lacks the permission for.\n# TYPE ostiary_params_informers gauge\nostiary_params_informers 1\n"
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

// silent does not respond.
type silent struct{}

func (silent) ServerResourcesForGroupVersionWithContext(ctx context.Context, _ string) (*metav1.APIResourceList, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestKindThatDoesNotAnswer(t *testing.T) {
	s := New(Options{Client: dynamic.NewForConfigOrDie(apiServer), Discovery: silent{}, Registerer: prometheus.NewRegistry()})
	defer s.stop()
	if err := s.Ready(); err != nil {
		t.Errorf("Ready() = %v before Want", err)
	}
	s.Want(whole(configMaps))
	if err := s.Ready(); err == nil {
		t.Error("Ready() = nil before the first list")
	}
	// A request waits for up to a second. The result is an error, to which failurePolicy
	// applies, and not an empty list.
	got, err := s.Params(t.Context(), &configMaps, ref("", "a"), "default")
	if want := "objects of kind ConfigMap in v1 are still being listed"; textOf(err) != want || got != nil {
		t.Errorf("Params() = %v, %q, want %q", got, textOf(err), want)
	}
	late := make(chan time.Time)
	close(late)
	s.mu.Lock()
	s.deadline = late
	s.mu.Unlock()
	if err := s.Ready(); err != nil {
		t.Errorf("Ready() = %v after the deadline", err)
	}
}

func TestConcurrentCallers(t *testing.T) {
	s := newStore(t, "")
	namespace := newNamespace(t)
	addConfigMap(t, namespace, "c", nil)
	s.Want(whole(configMaps))
	synced(t, s, configMaps)
	ctx, stop := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for range 16 {
		callers.Go(func() {
			for ctx.Err() == nil {
				got, err := s.Params(t.Context(), &configMaps, ref(namespace, "c", denying), "")
				if err != nil || len(got) != 1 {
					t.Errorf("Params() = %d, %v", len(got), err)
					return
				}
				s.State(&configMaps)
			}
		})
	}
	secrets := admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "Secret"}
	for range 20 {
		s.Want(whole(configMaps, secrets))
		time.Sleep(time.Millisecond)
		s.Want(whole(configMaps))
	}
	stop()
	callers.Wait()
}
