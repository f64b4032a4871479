package status

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/internal/events"
	"github.com/ostiary/ostiary/controllers/policies"
	"github.com/ostiary/ostiary/internal/pluginapi"
	"github.com/ostiary/ostiary/internal/rehearsal"
)

// fakeSources are the sources of a policy's inputs.
type fakeSources struct {
	listeners events.Broadcaster
	synced    bool
	problem   string
	excess    string
	notFound  string
	missing   string
	reading   bool
	backend   string // problem of the Secret of image policies
	found     *admissionregistrationv1.TypeChecking
}

func (w *fakeSources) Excess(*admissionregistrationv1.ParamKind, ...*admissionregistrationv1.ParamRef) string {
	return w.excess
}

func (w *fakeSources) NotFound(*admissionregistrationv1.ParamKind, *admissionregistrationv1.ParamRef) string {
	return w.notFound
}

func (w *fakeSources) State(*admissionregistrationv1.ParamKind, ...*admissionregistrationv1.ParamRef) (bool, string) {
	return w.synced, w.problem
}
func (w *fakeSources) Missing(*v1alpha1.WebhookPolicy) (string, bool) { return w.missing, w.reading }
func (w *fakeSources) Backend(pluginapi.SecretKey) (pluginapi.ImageBackend, error) {
	if w.backend != "" {
		return nil, errors.New(w.backend)
	}
	return nil, nil //nolint:nilnil // the backend is not called
}
func (w *fakeSources) Found(*v1alpha1.WebhookPolicy) *admissionregistrationv1.TypeChecking {
	return w.found
}

func (w *fakeSources) Rehearsed(*v1alpha1.WebhookPolicy) *rehearsal.Result { return nil }
func (w *fakeSources) Subscribe(ctx context.Context) <-chan struct{} {
	return w.listeners.Subscribe(ctx)
}

func withParams(p *v1alpha1.WebhookPolicy) *v1alpha1.WebhookPolicy {
	p.Spec.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
	p.Spec.Bindings = []v1alpha1.Binding{{Name: "b", ParamRef: &admissionregistrationv1.ParamRef{Name: "x"}}}
	return p
}

func withImages(p *v1alpha1.WebhookPolicy) *v1alpha1.WebhookPolicy {
	p.Spec = v1alpha1.WebhookPolicySpec{Plugin: &v1alpha1.Plugin{
		Name:   v1alpha1.PluginImagePolicyWebhook,
		Config: &runtime.RawExtension{Raw: []byte(`{"imagePolicy": {"kubeConfigSecret": {"name": "s"}}}`)},
	}}
	return p
}

func TestMissingDependency(t *testing.T) {
	unused := withParams(newPolicy())
	unused.Spec.Bindings = nil
	tests := map[string]struct {
		policy  *v1alpha1.WebhookPolicy
		sources *fakeSources
		want    missingDependency
	}{
		"nothing": {policy: withParams(newPolicy()), sources: &fakeSources{synced: true}, want: missingDependency{}},
		"params that are a problem": {
			policy:  withParams(newPolicy()),
			sources: &fakeSources{problem: "forbidden"},
			want:    missingDependency{reason: "ParamsNotReady", message: "forbidden"},
		},
		"params, known but a problem": {
			policy:  withParams(newPolicy()),
			sources: &fakeSources{synced: true, problem: "forbidden"},
			want:    missingDependency{reason: "ParamsNotReady", message: "forbidden"},
		},
		"params that are being listed": {
			policy:  withParams(newPolicy()),
			sources: &fakeSources{},
			want: missingDependency{
				reason:    "ParamsNotReady",
				message:   "objects of kind ConfigMap in v1 are being listed",
				transient: true,
			},
		},
		"params of a full namespace": {
			policy:  withParams(newPolicy()),
			sources: &fakeSources{synced: true, excess: "too many"},
			want:    missingDependency{reason: "ParamsNotReady", message: "too many"},
		},
		"a kind that no binding reads": {
			policy:  unused,
			sources: &fakeSources{problem: "no kind"},
			want:    missingDependency{reason: "ParamsNotReady", message: "no kind"},
		},
		"no params": {
			policy:  newPolicy(),
			sources: &fakeSources{problem: "forbidden"},
			want:    missingDependency{},
		},
		"a Secret": {
			policy:  withImages(newPolicy()),
			sources: &fakeSources{backend: "Secret a/s: it does not exist"},
			want:    missingDependency{reason: "ParamsNotReady", message: "Secret a/s: it does not exist"},
		},
		"a valid Secret": {policy: withImages(newPolicy()), sources: &fakeSources{}, want: missingDependency{}},
		"an unused Secret": {
			policy:  newPolicy(),
			sources: &fakeSources{backend: "Secret a/s: it does not exist"},
			want:    missingDependency{},
		},
		"a schema": {
			policy:  newPolicy(),
			sources: &fakeSources{missing: "no schema"},
			want:    missingDependency{reason: "SchemaNotReady", message: "no schema"},
		},
		"a schema that is being read": {
			policy:  newPolicy(),
			sources: &fakeSources{missing: "no schema", reading: true},
			want: missingDependency{
				reason:    "SchemaNotReady",
				message:   "the schemas of the mutated kinds are being read",
				transient: true,
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := &Reconciler{Sources: []Source{Params(tc.sources), Schemas(tc.sources), Types(tc.sources), Images(tc.sources)}}
			if diff := cmp.Diff(tc.want, r.inputs(t.Context(), tc.policy).missing, cmp.AllowUnexported(missingDependency{})); diff != "" {
				t.Errorf("missing dependency (-want +got):\n%s", diff)
			}
			if got := (&Reconciler{}).inputs(t.Context(), tc.policy); !reflect.DeepEqual(got, inputs{}) {
				t.Errorf("inputs without sources: %+v", got)
			}
		})
	}
}

func TestAbsentParams(t *testing.T) {
	const absent = ", because ConfigMap shop/limits does not exist at spec.bindings[0].paramRef: create it, or set " +
		"parameterNotFoundAction: Allow"
	with := func(change func(*v1alpha1.WebhookPolicy)) *v1alpha1.WebhookPolicy {
		p := withParams(newPolicy())
		change(p)
		return p
	}
	ignore := admissionregistrationv1.Ignore
	tests := map[string]struct {
		policy   *v1alpha1.WebhookPolicy
		notFound string
		want     string
	}{
		"found": {policy: withParams(newPolicy())},
		"not found": {
			policy:   withParams(newPolicy()),
			notFound: "ConfigMap shop/limits does not exist",
			want:     "every matching request is denied" + absent,
		},
		"allowed": {notFound: "x", policy: with(func(p *v1alpha1.WebhookPolicy) {
			p.Spec.Bindings[0].ParamRef.ParameterNotFoundAction = new(admissionregistrationv1.AllowAction)
		})},
		"a part of the requests": {notFound: "ConfigMap shop/limits does not exist", policy: with(func(p *v1alpha1.WebhookPolicy) {
			p.Spec.Bindings[0].MatchResources = &admissionregistrationv1.MatchResources{}
		}), want: `every request that the binding "b" matches is denied` + absent},
		"failurePolicy Ignore": {notFound: "ConfigMap shop/limits does not exist", policy: with(func(p *v1alpha1.WebhookPolicy) {
			p.Spec.FailurePolicy = &ignore
		}), want: `the binding "b" has no effect with failurePolicy Ignore` + absent},
		"many bindings": {notFound: "x", policy: with(func(p *v1alpha1.WebhookPolicy) {
			p.Spec.Bindings = slices.Repeat(p.Spec.Bindings, 5)
		}), want: "2 more bindings have no params"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := &Reconciler{Sources: []Source{Params(&fakeSources{synced: true, notFound: tt.notFound})}}
			got := r.inputs(t.Context(), tt.policy).absentParams
			if name == "many bindings" {
				got = got[strings.LastIndex(got, "; ")+len("; "):]
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestObjectsOfPoliciesAndPlugins checks that policies and plugins have separate sources, and that the first missing
// dependency is reported.
func TestObjectsOfPoliciesAndPlugins(t *testing.T) {
	plugin := withImages(newPolicy())
	plugin.Spec.Plugin = &v1alpha1.Plugin{Name: v1alpha1.PluginDefaultIngressClass}
	r := &Reconciler{Sources: []Source{
		Params(&fakeSources{problem: "no params"}), PluginObjects(&fakeSources{problem: "no objects"}),
		Schemas(&fakeSources{missing: "no schema"}),
	}}
	for name, tc := range map[string]struct {
		policy *v1alpha1.WebhookPolicy
		want   string
	}{
		"a policy with params":     {withParams(newPolicy()), "no params"},
		"a policy without params":  {newPolicy(), "no schema"},
		"a plugin that lists":      {plugin, "no objects"},
		"a plugin that lists none": {withImages(newPolicy()), "no schema"},
	} {
		if got := r.inputs(t.Context(), tc.policy).missing.message; got != tc.want {
			t.Errorf("%s: %q is missing, want %q", name, got, tc.want)
		}
	}
}

func TestShouldReport(t *testing.T) {
	p := newPolicy()
	state := &policies.State{Registrable: true, Entries: map[types.UID]*policies.Entry{p.UID: {Generation: &policies.Generation{Policy: p}}}}
	transient, lasting := inputs{missing: missingDependency{message: "m", transient: true}}, inputs{missing: missingDependency{message: "m"}}
	if !shouldReport(p, state, transient) {
		t.Error("a new generation has no status")
	}
	p.Status.ObservedGeneration = p.Generation
	if shouldReport(p, state, transient) {
		t.Error("a replica that has just started reports a policy as not Ready")
	}
	pending := &metav1.Condition{Status: metav1.ConditionUnknown, Reason: ReasonPending}
	if shouldReport(p, state, inputs{reachable: pending}) {
		t.Error("a policy is reported before the canary has a result")
	}
	forbidden := &metav1.Condition{Status: metav1.ConditionFalse, Reason: "Forbidden"}
	if !shouldReport(p, state, inputs{reachable: pending, caReady: forbidden, missing: missingDependency{reason: "Forbidden", message: "m"}}) {
		t.Error("a problem of the CA bundle is not reported while the backend has not been tested")
	}
	if !shouldReport(p, state, lasting) || !shouldReport(p, state, inputs{}) {
		t.Error("a known state is not reported")
	}
}

func TestTypeCheckingIsReported(t *testing.T) {
	found := &admissionregistrationv1.TypeChecking{
		ExpressionWarnings: []admissionregistrationv1.ExpressionWarning{{FieldRef: "f", Warning: "w"}},
	}
	p := newPolicy()
	r := &Reconciler{Sources: []Source{Types(&fakeSources{found: found})}}
	if got := observe(p, nil, r.inputs(t.Context(), p), &stages{}, now).TypeChecking; got != found {
		t.Errorf("typeChecking = %v", got)
	}
}

func TestChangesOfSources(t *testing.T) {
	schemas, found := &fakeSources{}, &fakeSources{}
	r := &Reconciler{Store: &policies.Store{}, Sources: []Source{Schemas(schemas), Types(found)}}
	changed := r.changes(t.Context())
	for _, w := range []*fakeSources{schemas, found} {
		w.listeners.Notify()
		NewWithT(t).Eventually(changed).WithTimeout(time.Minute).Should(Receive())
	}
}

// A param that appears or disappears concerns only the policies that read params.
func TestChangesConcern(t *testing.T) {
	withParams := newPolicy()
	withParams.Spec.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
	withPlugin := newPolicy()
	withPlugin.Spec.Plugin = &v1alpha1.Plugin{Name: v1alpha1.PluginResourceQuota}
	for name, tc := range map[string]struct {
		source Source
		want   []bool // for a policy with expressions alone, with params, and with a plugin
	}{
		"params":              {Params(&fakeSources{}), []bool{false, true, false}},
		"objects of a plugin": {PluginObjects(&fakeSources{}), []bool{false, false, true}},
	} {
		t.Run(name, func(t *testing.T) {
			for i, p := range []*v1alpha1.WebhookPolicy{newPolicy(), withParams, withPlugin} {
				if got := tc.source.concerns(p); got != tc.want[i] {
					t.Errorf("policy %d: a change concerns it: %t, want %t", i, got, tc.want[i])
				}
			}
		})
	}
}
