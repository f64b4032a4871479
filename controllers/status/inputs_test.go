package status

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/internal/events"
	"github.com/ostiary/ostiary/controllers/policies"
	"github.com/ostiary/ostiary/internal/policy"
)

// world is what is known beside a policy, as a test says.
type world struct {
	listeners events.Broadcaster
	synced    bool
	problem   string
	missing   string
	reading   bool
	backend   string // what is wrong with the Secret of image policies
	found     *admissionregistrationv1.TypeChecking
}

func (w *world) State(*admissionregistrationv1.ParamKind) (bool, string) { return w.synced, w.problem }
func (w *world) Missing(*v1alpha1.WebhookPolicy) (string, bool)          { return w.missing, w.reading }
func (w *world) Backend(policy.SecretKey) (policy.ImageBackend, error) {
	if w.backend != "" {
		return nil, errors.New(w.backend)
	}
	return nil, nil //nolint:nilnil // nobody asks it
}
func (w *world) Found(*v1alpha1.WebhookPolicy) *admissionregistrationv1.TypeChecking {
	return w.found
}
func (w *world) Subscribe(ctx context.Context) <-chan struct{} { return w.listeners.Subscribe(ctx) }

func withParams(p *v1alpha1.WebhookPolicy) *v1alpha1.WebhookPolicy {
	p.Spec.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
	p.Spec.Bindings = []v1alpha1.Binding{{Name: "b", ParamRef: &admissionregistrationv1.ParamRef{Name: "x"}}}
	return p
}

func withImages(p *v1alpha1.WebhookPolicy) *v1alpha1.WebhookPolicy {
	p.Spec = v1alpha1.WebhookPolicySpec{Plugin: &v1alpha1.Plugin{
		Name: v1alpha1.PluginImagePolicyWebhook, Config: &runtime.RawExtension{Raw: []byte(`{"imagePolicy": {"kubeConfigSecret": {"name": "s"}}}`)},
	}}
	return p
}

func TestLacks(t *testing.T) {
	unused := withParams(newPolicy())
	unused.Spec.Bindings = nil
	tests := map[string]struct {
		policy *v1alpha1.WebhookPolicy
		world  *world
		want   missingDependency
	}{
		"nothing":                      {withParams(newPolicy()), &world{synced: true}, missingDependency{}},
		"params that are a problem":    {withParams(newPolicy()), &world{problem: "forbidden"}, missingDependency{reason: "ParamsNotReady", message: "forbidden"}},
		"params, known but a problem":  {withParams(newPolicy()), &world{synced: true, problem: "forbidden"}, missingDependency{reason: "ParamsNotReady", message: "forbidden"}},
		"params that are being listed": {withParams(newPolicy()), &world{}, missingDependency{reason: "ParamsNotReady", message: "objects of kind ConfigMap in v1 are being listed", temporary: true}},
		"params that no binding names": {unused, &world{problem: "forbidden"}, missingDependency{}},
		"no params":                    {newPolicy(), &world{problem: "forbidden"}, missingDependency{}},
		"a Secret":                     {withImages(newPolicy()), &world{backend: "Secret a/s: it does not exist"}, missingDependency{reason: "ParamsNotReady", message: "Secret a/s: it does not exist"}},
		"a Secret that is right":       {withImages(newPolicy()), &world{}, missingDependency{}},
		"a Secret that nobody names":   {newPolicy(), &world{backend: "Secret a/s: it does not exist"}, missingDependency{}},
		"a schema":                     {newPolicy(), &world{missing: "no schema"}, missingDependency{reason: "SchemaNotReady", message: "no schema"}},
		"a schema that is being read":  {newPolicy(), &world{missing: "no schema", reading: true}, missingDependency{reason: "SchemaNotReady", message: "the schemas of the kinds to mutate are being read", temporary: true}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := &Reconciler{Params: tc.world, Schemas: tc.world, Types: tc.world, Images: tc.world}
			if diff := cmp.Diff(tc.want, r.missingDependency(tc.policy), cmp.AllowUnexported(missingDependency{})); diff != "" {
				t.Errorf("lacks (-want +got):\n%s", diff)
			}
			if got := (&Reconciler{}).inputs(t.Context(), tc.policy); !reflect.DeepEqual(got, inputs{}) {
				t.Errorf("without anything beside: %+v", got)
			}
		})
	}
}

func TestStatusStandsWhileThingsAreBeingRead(t *testing.T) {
	p := newPolicy()
	state := &policies.State{Registrable: true, Entries: map[types.UID]*policies.Entry{p.UID: {Policy: p}}}
	passing, lasting := inputs{missing: missingDependency{message: "m", temporary: true}}, inputs{missing: missingDependency{message: "m"}}
	if !shouldReport(p, state, passing) {
		t.Error("a new generation has to have a status")
	}
	p.Status.ObservedGeneration = p.Generation
	if shouldReport(p, state, passing) {
		t.Error("a replica that has just started calls a policy out of force")
	}
	if !shouldReport(p, state, lasting) || !shouldReport(p, state, inputs{}) {
		t.Error("what is known is not told")
	}
}

func TestTypeCheckingIsReported(t *testing.T) {
	found := &admissionregistrationv1.TypeChecking{ExpressionWarnings: []admissionregistrationv1.ExpressionWarning{{FieldRef: "f", Warning: "w"}}}
	p := newPolicy()
	r := &Reconciler{Types: &world{found: found}}
	if got := observe(p, nil, r.inputs(t.Context(), p), now).TypeChecking; got != found {
		t.Errorf("typeChecking = %v", got)
	}
}

func TestChangesBesideAreHeard(t *testing.T) {
	params, schemas, found := &world{}, &world{}, &world{}
	r := &Reconciler{Store: &policies.Store{}, Params: params, Schemas: schemas, Types: found}
	heard := r.changes(t.Context())
	for _, w := range []*world{params, schemas, found} {
		w.listeners.Notify()
		NewWithT(t).Eventually(heard).WithTimeout(time.Minute).Should(Receive())
	}
}
