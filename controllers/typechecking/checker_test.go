package typechecking

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/test/controlplane"
	"github.com/ostiary/ostiary/test/controlplane/cptest"
)

const (
	eventually = time.Minute
	pause      = 20 * time.Millisecond
)

var apiServer *rest.Config

func TestMain(m *testing.M) {
	os.Exit(cptest.Main(m, controlplane.Options{}, func(cp *controlplane.ControlPlane) { apiServer = cp.Config() }))
}

func checkerOf(schemas resolver.SchemaResolver) *Checker {
	client := kubernetes.NewForConfigOrDie(apiServer).Discovery()
	if schemas == nil {
		schemas = &resolver.ClientDiscoveryResolver{Discovery: client}
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client))
	return New(validating.TypeChecker{SchemaResolver: schemas, RestMapper: mapper}, logr.Discard())
}

func run(t *testing.T, c *Checker) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := c.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { stop(); running.Wait() })
}

func policyFor(name string, validations ...admissionregistrationv1.Validation) *v1alpha1.WebhookPolicy {
	return &v1alpha1.WebhookPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Generation: 1},
		Spec: v1alpha1.WebhookPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"statefulsets", "deployments"}},
				},
			}}},
			Validations: validations,
		},
	}
}

func found(c *Checker, p *v1alpha1.WebhookPolicy) func() *admissionregistrationv1.TypeChecking {
	return func() *admissionregistrationv1.TypeChecking { return c.Found(p) }
}

// TestSameWarningsAsKubernetes compares the warnings with those of
// kube-controller-manager for the same expressions.
func TestSameWarningsAsKubernetes(t *testing.T) {
	v := func(expression string) admissionregistrationv1.Validation {
		return admissionregistrationv1.Validation{Expression: expression}
	}
	tests := map[string]*v1alpha1.WebhookPolicy{
		"right":   policyFor("right", v("object.spec.replicas <= 5")),
		"wrong":   policyFor("wrong", v("object.spec.replicas <= 5"), v("object.spec.replicsa <= 5"), admissionregistrationv1.Validation{Expression: "object.spec.replicas > '5'", MessageExpression: "'no ' + object.spec.replicas"}),
		"params":  policyFor("params", v("params.data.max == 5")),
		"with":    policyFor("with", v("variables.replicas <= 5 && variables.nothing")),
		"unknown": policyFor("unknown", v("object.nothing == 1")),
	}
	tests["params"].Spec.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
	tests["with"].Spec.Variables = []admissionregistrationv1.Variable{{Name: "replicas", Expression: "object.spec.replicas"}, {Name: "nothing", Expression: "object.spec.nothing"}}
	tests["unknown"].Spec.MatchConstraints.ResourceRules[0].Resources = []string{"nothings"}
	c := checkerOf(nil)
	run(t, c)
	var all []*v1alpha1.WebhookPolicy
	for _, p := range tests {
		all = append(all, p)
	}
	c.Want(all)
	client := kubernetes.NewForConfigOrDie(apiServer).AdmissionregistrationV1().ValidatingAdmissionPolicies()
	for name, p := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			before := p.DeepCopy()
			native := native(p)
			if _, err := client.Create(t.Context(), native, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			var want *admissionregistrationv1.TypeChecking
			g.Eventually(func() (*admissionregistrationv1.TypeChecking, error) {
				stored, err := client.Get(t.Context(), native.Name, metav1.GetOptions{})
				if err != nil {
					return nil, err
				}
				want = stored.Status.TypeChecking
				return want, nil
			}).WithTimeout(eventually).WithPolling(pause).ShouldNot(BeNil())
			g.Eventually(found(c, p)).WithTimeout(eventually).WithPolling(pause).ShouldNot(BeNil())
			if diff := cmp.Diff(want, c.Found(p)); diff != "" {
				t.Errorf("warnings (-native +ours):\n%s", diff)
			}
			if diff := cmp.Diff(before, p); diff != "" {
				t.Errorf("the policy was changed:\n%s", diff)
			}
			if name == "wrong" && len(want.ExpressionWarnings) < 3 {
				t.Errorf("compared only %d warnings", len(want.ExpressionWarnings))
			}
		})
	}
}

// asked counts the resolved schemas and can panic.
type asked struct {
	resolver.SchemaResolver
	mu     sync.Mutex
	kinds  []string
	panics bool
}

func (a *asked) ResolveSchema(kind schema.GroupVersionKind) (*spec.Schema, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.kinds = append(a.kinds, kind.Kind)
	if a.panics {
		panic("lost")
	}
	return nil, resolver.ErrSchemaNotFound
}

func (a *asked) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.kinds)
}

func TestEachGenerationIsCheckedOnce(t *testing.T) {
	a := &asked{}
	c := checkerOf(a)
	run(t, c)
	notified := c.Subscribe(t.Context())
	p := policyFor("p", admissionregistrationv1.Validation{Expression: "true"})
	checked := policyFor("checked", admissionregistrationv1.Validation{Expression: "true"})
	checked.Status = v1alpha1.WebhookPolicyStatus{ObservedGeneration: 1, TypeChecking: &admissionregistrationv1.TypeChecking{}}
	mutates := policyFor("mutates")
	g := NewWithT(t)
	for range 3 {
		c.Want([]*v1alpha1.WebhookPolicy{p, checked, mutates})
		g.Eventually(found(c, p)).WithTimeout(eventually).WithPolling(pause).ShouldNot(BeNil())
		g.Eventually(found(c, mutates)).WithTimeout(eventually).WithPolling(pause).ShouldNot(BeNil())
	}
	g.Eventually(notified).WithTimeout(eventually).Should(Receive())
	if n := a.count(); n != 2 {
		t.Errorf("%d schemas were resolved, want 2", n)
	}
	changed := p.DeepCopy()
	changed.Generation = 2
	if c.Found(changed) != nil {
		t.Error("a new generation has the warnings of the old one")
	}
	c.Want([]*v1alpha1.WebhookPolicy{changed})
	g.Eventually(found(c, changed)).WithTimeout(eventually).WithPolling(pause).ShouldNot(BeNil())
	c.Want(nil)
	if c.Found(changed) != nil {
		t.Error("the result of a removed policy remains")
	}
}

func TestPanic(t *testing.T) {
	a := &asked{panics: true}
	c := checkerOf(a)
	run(t, c)
	p := policyFor("p", admissionregistrationv1.Validation{Expression: "true"})
	c.Want([]*v1alpha1.WebhookPolicy{p})
	NewWithT(t).Eventually(found(c, p)).WithTimeout(eventually).WithPolling(pause).ShouldNot(BeNil())
	if a.count() == 0 {
		t.Error("ResolveSchema was not called")
	}
}

func TestWarningsAreBounded(t *testing.T) {
	// The API server rejects a status with a longer warning.
	crd, err := os.ReadFile("../../config/crd/bases/admission.ostiary.dev_webhookpolicies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if _, after, ok := strings.Cut(string(crd), " warning:\n"); !ok || !strings.Contains(after[:min(len(after), 400)], fmt.Sprintf("maxLength: %d\n", maxWarning)) {
		t.Errorf("the CustomResourceDefinition does not allow warnings of %d bytes", maxWarning)
	}
}
