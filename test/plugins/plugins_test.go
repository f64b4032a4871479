// Package plugins sends the same requests to an API server with the native admission plugins,
// and to one with Ostiary and policies with the same plugins. It compares code, reason,
// message and the resulting object. differences has the permitted differences, each with its
// row of docs/migration/plugin-differences.md.
package plugins

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/test/controlplane"
	"github.com/ostiary/ostiary/test/controlplane/cptest"
	"github.com/ostiary/ostiary/test/manager"
)

const root = "../.."

var (
	number = flag.Int("n", 60, "how many random Pods")
	seed   = flag.Uint64("seed", 1, "of the random Pods")
)

// testCase is one request.
type testCase struct {
	Name        string            `json:"name"`
	Namespace   *string           `json:"namespace,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"` // of the namespace
	Before      map[string]any    `json:"before,omitempty"`
	Pods        []map[string]any  `json:"pods,omitempty"` // there are, in a namespace that is the object
	Object      map[string]any    `json:"object"`
	Subresource string            `json:"subresource,omitempty"`
	User        string            `json:"user,omitempty"`
	DryRun      bool              `json:"dryRun,omitempty"`
	Differs     string            `json:"differs,omitempty"`
	Flood       *flood            `json:"flood,omitempty"`
}

// flood has a request made many times, each with its number in the name, and in
// the place of "#". What came back last is compared.
type flood struct {
	Times int    `json:"times"`
	Until string `json:"until,omitempty"` // ends it, in a message
}

// difference says what both sides answer where they are allowed to differ.
type difference struct {
	row          string // of docs/migration/plugin-differences.md
	native, ours func(outcome) bool
}

func TestDocumentedDifferences(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "migration", "plugin-differences.md"))
	if err != nil {
		t.Fatal(err)
	}
	for name, d := range differences() {
		if !strings.Contains(string(text), "\n| "+d.row+" |") {
			t.Errorf("docs/migration/plugin-differences.md has no row %q for the difference %s", d.row, name)
		}
	}
}

func differences() map[string]difference {
	code := func(c int32) func(outcome) bool { return func(o outcome) bool { return o.Code == c } }
	refused := func(text string) func(outcome) bool {
		return func(o outcome) bool {
			return o.Code == 403 && o.Reason == metav1.StatusReasonForbidden && strings.Contains(o.Message, text)
		}
	}
	class := func(name string) func(outcome) bool {
		return func(o outcome) bool {
			found, _, _ := unstructured.NestedString(o.Object, "spec", "storageClassName")
			return o.Code == 0 && found == name
		}
	}
	return map[string]difference{
		"malformed-annotation": {
			row:    "annotation of a namespace that cannot be read (PodNodeSelector, PodTolerationRestriction)",
			native: code(500),
			ours:   refused("the annotation scheduler.alpha.kubernetes.io/"),
		},
		"not-allowed": {
			row:    "tolerations that are not allowed (PodTolerationRestriction)",
			native: code(500),
			ours:   refused("pod tolerations (possibly merged with namespace default tolerations) conflict with its "),
		},
		"own-300": {
			row:    "a toleration of exactly 300 s in the Pod (DefaultTolerationSeconds)",
			native: code(0),
			ours:   code(0),
		},
		"no-answer": {row: "a backend that does not answer (ImagePolicyWebhook)", native: refused(""),
			ours: func(o outcome) bool {
				return refused("")(o) && strings.HasPrefix(o.Message, "pods ")
			}},
		"uncovered-scope": {
			row:    "scopes that no quota covers (ResourceQuota)",
			native: code(500),
			ours:   refused("insufficient quota to match these scopes: "),
		},
		"newer-events": {row: "events of `events.k8s.io` (EventRateLimit)", native: code(0), ours: func(o outcome) bool {
			return o.Code == 429 && o.Reason == metav1.StatusReasonTooManyRequests
		}},
		"latest": {row: "`latest` (PodSecurity)", native: refused("forbidden sysctls"), ours: code(0)},
		"templates": {row: "Pod templates in custom kinds (PodSecurity)", native: code(0), ours: func(o outcome) bool {
			return o.Code == 0 && slices.ContainsFunc(o.Warnings, func(w string) bool { return strings.Contains(w, "would violate PodSecurity") })
		}},
		"namespace-class": {
			row:    "a class of a namespace (DefaultStorageClass, DefaultIngressClass)",
			native: class("plain"),
			ours:   class("other"),
		},
	}
}

// outcome is what came back of a request.
type outcome struct {
	Code    int32
	Reason  metav1.StatusReason
	Message string
	Object  map[string]any
	// Warnings of what is allowed. Natively no further plugin is asked once a plugin
	// has refused, while webhooks are called side by side.
	Warnings []string
}

// side is one of the two API servers.
type side struct {
	name  string
	plane *controlplane.ControlPlane
	mu    sync.Mutex
	users map[string]dynamic.Interface
	heard warnings
}

func (s *side) as(t *testing.T, user string) dynamic.Interface {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users[user] == nil {
		config := s.plane.Config()
		config.Impersonate.UserName = user
		config.WarningHandler = &s.heard
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		s.users[user] = client
	}
	return s.users[user]
}

func TestPlugins(t *testing.T) {
	sides := start(t)
	total := map[string]*caseCounts{}
	for plugin, cases := range read[map[string][]testCase](t, "cases.yaml") {
		total[plugin] = &caseCounts{}
		for i, c := range cases {
			t.Run(plugin+"/"+c.Name, func(t *testing.T) {
				total[plugin].compare(t, sides, fmt.Sprintf("%s-%d", strings.ToLower(plugin), i), c)
			})
		}
	}
	random := rand.New(rand.NewPCG(*seed, 0))
	total["random Pods"] = &caseCounts{}
	for i := range *number {
		c := randomPod(random)
		t.Run(fmt.Sprintf("random/%d", i), func(t *testing.T) { total["random Pods"].compare(t, sides, fmt.Sprintf("random-%d", i), c) })
	}
	if n := total["random Pods"]; *number > 20 && (n.refused == 0 || n.refused == n.cases) {
		t.Errorf("%d of %d random Pods are refused: they show nothing", n.refused, n.cases)
	}
	t.Run("table", func(t *testing.T) { testTable(t, sides[0]) })
	checks := 0
	fixtures := t.Run("fixtures", func(t *testing.T) { checks = testFixtures(t, sides[1]) })
	t.Run("samples", func(t *testing.T) { testSamples(t, sides[1]) })
	for _, plugin := range slices.Sorted(maps.Keys(total)) {
		t.Logf("%-40s %s", plugin, total[plugin])
	}
	if fixtures {
		t.Logf("%-40s all that Kubernetes has for %d checks, in each level and version, pass", "PodSecurity, fixtures", checks)
	}
}

// caseCounts counts what came of the cases of a plugin.
type caseCounts struct{ cases, agreed, listed, refused int }

func (n *caseCounts) String() string {
	return fmt.Sprintf("%3d cases: %3d agree (%d refused), %d listed differences, %d others", n.cases, n.agreed,
		n.refused, n.listed, n.cases-n.agreed-n.listed)
}

func (n *caseCounts) compare(t *testing.T, sides [2]*side, name string, c testCase) {
	t.Helper()
	n.cases++
	got, diff := outcomes(t, sides, name, c)
	if c.Differs == "" {
		if diff != "" {
			t.Errorf("(-native +ours):\n%s", diff)
			return
		}
		n.agreed++
		if got[0].Code != 0 {
			n.refused++
		}
		return
	}
	known, ok := differences()[c.Differs]
	switch {
	case !ok:
		t.Errorf("no difference is named %s", c.Differs)
	case diff == "":
		t.Errorf("the difference %s is gone", c.Differs)
	case !known.native(got[0]) || !known.ours(got[1]):
		t.Errorf("not the difference %s (-native +ours):\n%s", c.Differs, diff)
	default:
		n.listed++
	}
}

// outcomes are those of both sides. Natively Pods are watched: those of a case
// may be seen only after a while.
func outcomes(t *testing.T, sides [2]*side, name string, c testCase) (got [2]outcome, diff string) {
	t.Helper()
	for i, s := range sides {
		if c.Flood != nil {
			got[i] = s.flood(t, name, c)
			continue
		}
		got[i] = s.put(t, name, c)
	}
	diff = gocmp.Diff(got[0], got[1])
	for end := time.Now().Add(time.Minute); c.Pods != nil && diff != "" && time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		got = [2]outcome{sides[0].put(t, name, c), sides[1].put(t, name, c)}
		diff = gocmp.Diff(got[0], got[1])
	}
	return got, diff
}

func (s *side) flood(t *testing.T, name string, c testCase) outcome {
	t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var got outcome
	for i := range c.Flood.Times {
		var one testCase
		if err := json.Unmarshal([]byte(strings.ReplaceAll(string(text), "#", fmt.Sprint(i))), &one); err != nil {
			t.Fatal(err)
		}
		one.Namespace = new(cmp.Or(ptr.Deref(c.Namespace, ""), name))
		got = s.put(t, fmt.Sprintf("%s-%d", name, i), one)
		if c.Flood.Until != "" && strings.Contains(got.Message, c.Flood.Until) {
			return got
		}
	}
	if c.Flood.Until != "" {
		t.Errorf("%s: after %d requests there is none of %q: %+v", s.name, c.Flood.Times, c.Flood.Until, got)
	}
	return got
}

// put makes the request of a case, in a namespace of its own.
func (s *side) put(t *testing.T, name string, c testCase) outcome {
	t.Helper()
	namespace := name
	if c.Namespace != nil {
		namespace = *c.Namespace
	}
	object := complete(c.Object, name, namespace)
	client := func(user string) dynamic.ResourceInterface {
		return s.as(t, user).Resource(resourceOf(object)).Namespace(namespace)
	}
	switch {
	case object.GetKind() == "Namespace":
		name = namespace
		object.SetName(name)
		object.SetNamespace("")
		client = func(user string) dynamic.ResourceInterface { return s.as(t, user).Resource(resourceOf(object)) }
	case namespace != "":
		s.makeNamespace(t, namespace, c.Annotations, c.Labels)
	default:
		namespace = "nowhere"
		object.SetNamespace(namespace)
	}
	var dryRun []string
	if c.DryRun {
		dryRun = []string{metav1.DryRunAll}
	}
	var out *unstructured.Unstructured
	var err error
	s.heard.take()
	if c.Before == nil {
		out, err = client(c.User).Create(t.Context(), object, metav1.CreateOptions{DryRun: dryRun})
	} else {
		if _, err := client("").Create(t.Context(), complete(c.Before, name, object.GetNamespace()),
			metav1.CreateOptions{}); err != nil && (c.Pods == nil || !apierrors.IsAlreadyExists(err)) {
			t.Fatalf("%s: creating what stands before: %v", s.name, err)
		}
		for i, part := range c.Pods {
			pod := complete(part, fmt.Sprintf("pod-%d", i), namespace)
			if _, err := s.as(t, "").Resource(resourceOf(pod)).Namespace(namespace).Create(t.Context(), pod,
				metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
				t.Fatalf("%s: creating a Pod: %v", s.name, err)
			}
		}
		s.heard.take() // of what stands before
		patch, failed := json.Marshal(c.Object)
		if failed != nil {
			t.Fatal(failed)
		}
		kind := types.StrategicMergePatchType
		if _, owners, _ := unstructured.NestedFieldNoCopy(c.Object, "metadata", "ownerReferences"); owners {
			kind = types.MergePatchType
		}
		var subresources []string
		if c.Subresource != "" {
			subresources = []string{c.Subresource}
		}
		out, err = client(c.User).Patch(t.Context(), name, kind, patch, metav1.PatchOptions{DryRun: dryRun}, subresources...)
	}
	got := outcomeOf(t, out, err)
	for _, w := range s.heard.take() {
		if s.name == "ours" {
			w = aboutObject.ReplaceAllString(w, "")
		}
		if err == nil {
			got.Warnings = append(got.Warnings, w)
		}
	}
	return got
}

// aboutObject is the object that a warning of Ostiary ends with: see the row "the object of a warning".
var aboutObject = regexp.MustCompile(` \((a )?\S+( in)?( \S+)?\)$`)

var frame = regexp.MustCompile(`^admission webhook "[^"]+" denied the request: WebhookPolicy '[^']+' denied request: `)

func outcomeOf(t *testing.T, object *unstructured.Unstructured, err error) outcome {
	t.Helper()
	var status *apierrors.StatusError
	switch {
	case errors.As(err, &status):
		return outcome{
			Code:    status.ErrStatus.Code,
			Reason:  status.ErrStatus.Reason,
			Message: frame.ReplaceAllString(status.ErrStatus.Message, ""),
		}
	case err != nil:
		t.Fatal(err)
	}
	for _, path := range [][]string{
		{"metadata", "uid"}, {"metadata", "resourceVersion"}, {"metadata", "creationTimestamp"},
		{"metadata", "managedFields"}, {"metadata", "generation"},
		{"status"}, {"spec", "clusterIP"}, {"spec", "clusterIPs"},
	} {
		unstructured.RemoveNestedField(object.Object, path...)
	}
	return outcome{Object: object.Object}
}

func (s *side) makeNamespace(t *testing.T, name string, annotations, labels map[string]string) {
	t.Helper()
	ns := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}}
	ns.SetAnnotations(annotations)
	ns.SetLabels(labels)
	_, err := s.as(t, "").Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Create(t.Context(), ns, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatalf("%s: %v", s.name, err)
	}
}

// complete makes an object of the part that a case says: by default a Pod.
func complete(part map[string]any, name, namespace string) *unstructured.Unstructured {
	o := (&unstructured.Unstructured{Object: part}).DeepCopy()
	if o.GetKind() == "" {
		o.SetAPIVersion("v1")
		o.SetKind("Pod")
	}
	if o.GetGenerateName() == "" {
		o.SetName(name)
	}
	o.SetNamespace(namespace)
	return o
}

func resourceOf(o *unstructured.Unstructured) schema.GroupVersionResource {
	gvr, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
	return gvr
}

// randomPod is a Pod in a namespace with annotations, all made at random of what
// the plugins look at.
func randomPod(r *rand.Rand) testCase {
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	some := func(from ...string) string {
		var out []string
		for range r.IntN(3) {
			out = append(out, pick(from...))
		}
		return "[" + strings.Join(out, ",") + "]"
	}
	tolerations := []string{
		`{"key":"k","operator":"Exists"}`, `{"key":"k","operator":"Equal","value":"a","effect":"NoSchedule"}`,
		`{"key":"k","value":"b"}`, `{"key":"cluster","operator":"Exists"}`,
		`{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":9}`,
		`{"key":"example.com/gpu","operator":"Exists","effect":"NoSchedule"}`,
		`{"key":"node.kubernetes.io/unreachable","operator":"Exists","effect":"NoExecute"}`,
	}
	container := func(name string) string {
		return fmt.Sprintf(`{"name":%q,"image":%q,"imagePullPolicy":%q,"resources":{"limits":%s}}`, name, pick("a", "b:1"),
			pick("", "Always", "Never", "IfNotPresent"),
			pick("{}", `{"cpu":"1"}`, `{"memory":"1Gi","cpu":"1"}`, `{"example.com/gpu":"1"}`, `{"example.com/nic":"2","example.com/gpu":"1"}`))
	}
	text := fmt.Sprintf(`{"spec":{"containers":[%s,%s],"initContainers":[%s],"nodeSelector":%s,"tolerations":%s,"affinity":%s}}`,
		container("a"), container("b"), container("i"),
		pick("{}", `{"pool":"general"}`, `{"pool":"other"}`, `{"zone":"a"}`), some(tolerations...),
		pick("{}", `{"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"kubernetes.io/hostname"}]}}`,
			"{}", `{"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"zone"}]}}`))
	c := testCase{Annotations: map[string]string{}}
	if err := json.Unmarshal([]byte(text), &c.Object); err != nil {
		panic(err) // it is written above
	}
	for key, value := range map[string]string{
		"node-selector":      pick("", "pool=shop", "zone=a,pool=general"),
		"defaultTolerations": some(tolerations...),
	} {
		if r.IntN(2) == 0 {
			c.Annotations["scheduler.alpha.kubernetes.io/"+key] = value
		}
	}
	return c
}

func read[T any](t *testing.T, file string) (out T) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", file))
	if err == nil {
		err = yaml.UnmarshalStrict(text, &out)
	}
	if err != nil {
		t.Fatalf("reading %s: %v", file, err)
	}
	return out
}

// start starts both API servers, and the manager with all policies enforced.
func start(t *testing.T) [2]*side {
	t.Helper()
	kubeconfig := decideAboutImages(t)
	configuration := nativeConfiguration(t, kubeconfig)
	arguments := [2][]string{
		{
			"--enable-admission-plugins=AlwaysPullImages,DenyServiceExternalIPs,EventRateLimit,ExtendedResourceToleration,ImagePolicyWebhook,LimitPodHardAntiAffinityTopology,OwnerReferencesPermissionEnforcement,PodNodeSelector,PodTolerationRestriction",
			"--admission-control-config-file=" + configuration,
			"--default-not-ready-toleration-seconds=30", "--default-unreachable-toleration-seconds=60",
		},
		{"--disable-admission-plugins=DefaultIngressClass,PodSecurity"}, // and DefaultStorageClass runs before ours, as everywhere
	}
	var sides [2]*side
	for i, name := range []string{"native", "ours"} {
		cp := cptest.Run(t, controlplane.Options{NoControllerManager: true, APIServerArgs: arguments[i]})
		sides[i] = &side{name: name, plane: cp, users: map[string]dynamic.Interface{}}
		kubectl(t, cp, "apply", "--server-side", "-f", "testdata/world.yaml")
		kubectl(t, cp, "apply", "--server-side", "-f", "testdata/quotas.yaml")
		kubectl(t, cp, "apply", "--server-side", "--subresource=status", "-f", "testdata/quotas.yaml")
		kubectl(t, cp, "wait", "--for=condition=Established", "--timeout=2m", "crd/fleets.example.com")
	}
	ours := sides[1].plane
	kubectl(t, ours, "apply", "--server-side", "-f", root+"/config/crd/bases", "-f", root+"/config/namespace/namespace.yaml")
	kubectl(t, ours, "wait", "--for=condition=Established", "--timeout=2m", "crd/webhookpolicies.admission.ostiary.dev")
	kubectl(t, ours, "-n", "ostiary-system", "create", "secret", "generic", "ostiary-image-policy", "--from-file=kubeconfig="+kubeconfig)
	running, err := manager.Start(t.Context(), ours, manager.Options{Path: build(t), Args: []string{"--drain-max=1s"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := running.Stop(); err != nil {
			t.Error(err)
		}
	})
	sides[1].apply(t, read[map[string]map[string]any](t, "policies.yaml"))
	return sides
}

// nativeConfiguration is the path of native.yaml, beside what it refers to.
func nativeConfiguration(t *testing.T, kubeconfig string) string {
	t.Helper()
	folder := t.TempDir()
	for _, name := range []string{"native.yaml", "podnodeselector.yaml"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, name), []byte(strings.ReplaceAll(string(text), "$KUBECONFIG", kubeconfig)), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(folder, "native.yaml")
}

// apply puts policies into force.
func (s *side) apply(t *testing.T, specs map[string]map[string]any) {
	t.Helper()
	policies := s.as(t, "").Resource(v1alpha1.GroupVersion.WithResource("webhookpolicies"))
	for name, spec := range specs {
		p := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
		p.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("WebhookPolicy"))
		p.SetName(strings.ToLower(name))
		if _, err := policies.Create(t.Context(), p, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}); err != nil {
			t.Fatal(err)
		}
	}
	waiting := ""
	err := wait.PollUntilContextTimeout(t.Context(), 200*time.Millisecond, 5*time.Minute, true, func(ctx context.Context) (bool, error) {
		list, err := policies.List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		waiting = ""
		for i := range list.Items {
			var p v1alpha1.WebhookPolicy
			text, err := list.Items[i].MarshalJSON()
			if err == nil {
				err = json.Unmarshal(text, &p)
			}
			if err != nil {
				return false, err
			}
			if !meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionReady) {
				waiting += fmt.Sprintf("%s: %v\n", p.Name, p.Status.Conditions)
			}
		}
		return waiting == "", nil
	})
	if err != nil {
		t.Fatalf("waiting for the policies: %v\n%s", err, waiting)
	}
}

func build(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ostiary")
	if err := controlplane.BuildManager(t.Context(), root, path); err != nil {
		t.Fatal(err)
	}
	return path
}

func kubectl(t *testing.T, cp *controlplane.ControlPlane, args ...string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), cp.Kubectl(), append([]string{"--kubeconfig=" + cp.Kubeconfig()}, args...)...)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}
