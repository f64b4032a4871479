package rollouts

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/replicas"
	"github.com/ostiary/ostiary/internal/audit/results"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/rollout"
)

func start() time.Time { return time.Unix(0, 0).Add(1000 * period) }

// replicated has recorders of some replicas, and a sum of what they report, at a time that the test sets.
type replicated struct {
	now       time.Time
	steps     map[string]struct{}
	recorders map[string]*Recorder
	sum       *Sum
}

func newReplicated(names ...string) *replicated {
	r := &replicated{now: start(), steps: map[string]struct{}{"step": {}, "other": {}}, recorders: map[string]*Recorder{}}
	stepsNow := func() map[string]struct{} { return r.steps }
	for _, name := range names {
		r.recorders[name] = NewRecorder(stepsNow)
		r.recorders[name].now = func() time.Time { return r.now }
	}
	r.sum = &Sum{Steps: stepsNow}
	return r
}

// report writes the Leases of all replicas, and reads them.
func (r *replicated) report() {
	var live []replicas.Replica
	for name, of := range r.recorders {
		live = append(live, replicas.Replica{Name: name, RolloutCounts: of.Encode()})
	}
	r.sum.fold(live, r.now)
}

func request(name string) *admissionv1.AdmissionRequest {
	return &admissionv1.AdmissionRequest{Kind: metav1.GroupVersionKind{Kind: "ConfigMap"}, Namespace: "shop", Name: name}
}

func (r *replicated) violate(replica, name string, steps ...string) {
	r.recorders[replica].Add(policy.ViolationReport{Request: request(name), Evidence: steps})
}

func (r *replicated) count(step string) int64 { return r.sum.Requests(step, r.now).Count }

func TestCounts(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(*replicated)
		want int64 // of the step
	}{
		{"none", func(*replicated) {}, 0},
		{"one object at two replicas", func(r *replicated) { r.violate("a", "x", "step"); r.violate("b", "x", "step") }, 1},
		{"two objects at two replicas", func(r *replicated) { r.violate("a", "x", "step"); r.violate("b", "y", "step") }, 2},
		{"another step", func(r *replicated) { r.violate("a", "x", "other") }, 0},
		{"several steps of one request", func(r *replicated) { r.violate("a", "x", "other", "step") }, 1},
		{"a request outside of rollouts", func(r *replicated) { r.violate("a", "x") }, 0},
		{"a replica that has ended", func(r *replicated) { r.violate("a", "x", "step"); r.report(); delete(r.recorders, "a") }, 1},
		{"a replica that has started again", func(r *replicated) {
			r.violate("a", "x", "step")
			r.report()
			r.recorders["a"].counts = map[countKey]*count{}
			r.violate("a", "y", "step")
		}, 2},
		{"within a day", func(r *replicated) {
			r.violate("a", "x", "step")
			r.report()
			r.now = r.now.Add(rollout.Window - time.Second)
		}, 1},
		{"a day ago", func(r *replicated) { r.violate("a", "x", "step"); r.report(); r.now = r.now.Add(rollout.Window) }, 0},
		{"a step that has ended", func(r *replicated) {
			r.violate("a", "x", "step")
			r.report()
			delete(r.steps, "step")
			r.report()
			r.steps["step"] = struct{}{}
		}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newReplicated("a", "b")
			tc.do(r)
			r.report()
			if got := r.count("step"); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}

// TestManySteps counts for more steps than a Lease has room for. Nothing is known before the Lease has had all of them.
func TestManySteps(t *testing.T) {
	r := newReplicated("a")
	for i := range 500 {
		step := fmt.Sprintf("%016d", i)
		r.steps[step] = struct{}{}
		for j := range 10 {
			r.violate("a", fmt.Sprint("object-", j), step)
		}
	}
	end := r.now
	complete := false
	for range 100 {
		r.now = r.now.Add(4 * time.Second)
		if text := r.recorders["a"].Encode(); len(text) > maxEncoded+32 {
			t.Fatalf("a Lease gets %d bytes", len(text))
		}
		r.report()
		known := 0
		for i := range 500 {
			if r.count(fmt.Sprintf("%016d", i)) == 10 {
				known++
			}
		}
		if complete = !r.sum.Requests("step", r.now).Until.Before(end.Add(time.Second)); complete && known < 500 {
			t.Fatalf("the counts of %d of 500 steps are known, but all are reported as known", known)
		}
		if complete {
			break
		}
	}
	if !complete {
		t.Error("the counts are never complete")
	}
}

func TestRequestsAreKnown(t *testing.T) {
	r := newReplicated("a", "b")
	if got := r.sum.Requests("step", r.now); got.Missing == "" {
		t.Errorf("before the Leases have been read: %+v", got)
	}
	r.report()
	first := r.now
	r.now = r.now.Add(time.Minute)
	r.recorders["a"].now = func() time.Time { return first } // it has not reported since
	r.report()
	got := r.sum.Requests("step", r.now)
	if want := (rollout.Evidence{From: first, Until: time.Unix(first.Unix(), 0)}); cmp.Diff(want, got) != "" {
		t.Errorf("got %+v, want %+v", got, want)
	}
	r.sum.fold([]replicas.Replica{{Name: "older"}}, r.now)
	if got := r.sum.Requests("step", r.now); !got.Until.IsZero() {
		t.Errorf("with a replica that does not count: until %s", got.Until)
	}
}

func TestTextsAreOneWord(t *testing.T) {
	r := newReplicated("a")
	r.violate("a", "two words\nstep 1 AAAAAAAAAAA "+strings.Repeat("x", 500), "step")
	r.report()
	got := r.sum.Requests("step", r.now)
	if got.Count != 1 || len(got.Examples) != 1 || len(got.Examples[0]) > maxExample || strings.ContainsAny(got.Examples[0], " \n") {
		t.Errorf("got %+v", got)
	}
}

func TestOtherLinesAreIgnored(t *testing.T) {
	r := newReplicated()
	now := r.now.Unix()
	for _, text := range []string{
		"", "nonsense", fmt.Sprintf("%d\nstep", now), fmt.Sprintf("%d\nstep x AAAAAAAAAAE", now), fmt.Sprintf("%d\nstep 1 ?", now),
		fmt.Sprintf("%d\nunknown %d AAAAAAAAAAE", now, periodOf(r.now)),
	} {
		r.sum.fold([]replicas.Replica{{Name: "a", RolloutCounts: text}}, r.now)
		if len(r.sum.counts) > 0 {
			t.Errorf("%q is counted", text)
		}
	}
}

func TestFullRecorderKnowsNothing(t *testing.T) {
	r := newReplicated("a")
	for i := range maxCounts {
		r.recorders["a"].counts[countKey{fmt.Sprint(i), periodOf(r.now)}] = &count{}
		r.steps[fmt.Sprint(i)] = struct{}{}
	}
	r.violate("a", "x", "step")
	r.report()
	if got := r.sum.Requests("step", r.now); got.Until.After(time.Unix(0, 0)) {
		t.Errorf("until %s, although a request was not counted", got.Until)
	}
}

func TestSubjects(t *testing.T) {
	owned := `{"metadata": {"name": "web-1", "ownerReferences": [{"kind": "ReplicaSet", "name": "web", "controller": true}]}}`
	for _, tc := range []struct {
		name   string
		edit   func(*admissionv1.AdmissionRequest)
		wanted string
	}{
		{"an object", func(*admissionv1.AdmissionRequest) {}, "ConfigMap/shop/x"},
		{"its controller", func(q *admissionv1.AdmissionRequest) { q.Object.Raw = []byte(owned) }, "ReplicaSet/shop/web"},
		{"a deletion", func(q *admissionv1.AdmissionRequest) { q.OldObject.Raw = []byte(owned) }, "ReplicaSet/shop/web"},
		{"a generated name", func(q *admissionv1.AdmissionRequest) {
			q.Name, q.Object = "", runtime.RawExtension{Raw: []byte(`{"metadata": {"generateName": "job-"}}`)}
		}, "ConfigMap/shop/job-*"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newReplicated("a")
			q := request("x")
			tc.edit(q)
			r.recorders["a"].Add(policy.ViolationReport{Request: q, Evidence: []string{"step"}})
			r.report()
			if diff := cmp.Diff([]string{tc.wanted}, r.sum.Requests("step", r.now).Examples); diff != "" {
				t.Errorf("examples (-want +got):\n%s", diff)
			}
		})
	}
}

// auditOf is an audit that has found one object in each of some namespaces.
type auditOf struct {
	compiled   *policy.Compiled
	missing    string
	namespaces []string
}

func (a auditOf) Found(_ *v1alpha1.WebhookPolicy, selects func(string) bool) results.Found {
	out := results.Found{Compiled: a.compiled, Missing: a.missing}
	for _, n := range a.namespaces {
		if selects(n) {
			out.Count++
		}
	}
	return out
}

// labelled are namespaces with their labels.
type labelled map[string]map[string]string

func (l labelled) GetNamespace(_ context.Context, name string) (*corev1.Namespace, error) {
	if name == "broken" {
		return nil, errors.New("no connection")
	}
	found, ok := l[name]
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, name)
	}
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: found}}, nil
}

func TestObjects(t *testing.T) {
	dev := &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "dev"}}
	p := &v1alpha1.WebhookPolicy{Spec: v1alpha1.WebhookPolicySpec{
		Validations: []v1alpha1.Validation{{Expression: "true"}},
		Bindings: []v1alpha1.Binding{{Name: "b", Rollout: &v1alpha1.Rollout{Steps: []v1alpha1.RolloutStep{
			{Name: "everywhere"}, {Name: "dev", NamespaceSelector: dev},
		}}}},
	}}
	bound := *p.DeepCopy()
	bound.Spec.Bindings[0].MatchResources = &admissionregistrationv1.MatchResources{NamespaceSelector: dev}
	all := []string{"", "one", "two", "gone", "broken"}
	in := func(step string) *policy.Compiled {
		at := p.DeepCopy()
		at.Status.Bindings = []v1alpha1.BindingStatus{{Name: "b", Step: step, Token: step + "-key"}}
		compiled, errs := policy.NewCompiler().Compile(at)
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		return compiled
	}
	for _, tc := range []struct {
		name   string
		policy *v1alpha1.WebhookPolicy
		step   int
		audit  auditOf
		want   rollout.Evidence
	}{
		{"a step without a selector", p, 0, auditOf{compiled: in("everywhere"), namespaces: all}, rollout.Evidence{Count: 5}},
		{"a step with one", p, 1, auditOf{compiled: in("dev"), namespaces: all}, rollout.Evidence{Count: 2}},
		{"a binding with one", &bound, 0, auditOf{compiled: in("everywhere"), namespaces: all}, rollout.Evidence{Count: 3}},
		{"a scan of the step before", p, 1, auditOf{compiled: in("everywhere"), namespaces: all}, rollout.Evidence{IsPending: true}},
		{"no scan", p, 1, auditOf{}, rollout.Evidence{IsPending: true}},
		{"an incomplete scan", p, 1, auditOf{missing: "no access"}, rollout.Evidence{Missing: "no access"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := &Evidence{Audit: tc.audit, Namespaces: labelled{"one": {"tier": "dev"}, "two": {"tier": "prod"}}, Requests: newReplicated().sum}
			b := &tc.policy.Spec.Bindings[0]
			s := &b.Rollout.Steps[tc.step]
			got, _ := e.Of(t.Context(), tc.policy, start())(b, &v1alpha1.BindingStatus{Token: s.Name + "-key"}, s)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("evidence (-want +got):\n%s", diff)
			}
		})
	}
	disabled := &Evidence{Requests: newReplicated().sum}
	b := &p.Spec.Bindings[0]
	got, _ := disabled.Of(t.Context(), p, start())(b, &v1alpha1.BindingStatus{}, &b.Rollout.Steps[0])
	if !strings.Contains(got.Missing, "--audit-interval=0") {
		t.Errorf("without an audit: %+v", got)
	}
}

func TestMetrics(t *testing.T) {
	at := func(hours int) *metav1.Time { return &metav1.Time{Time: start().Add(time.Duration(hours) * time.Hour)} }
	policies := []*v1alpha1.WebhookPolicy{
		{},
		{Status: v1alpha1.WebhookPolicyStatus{Bindings: []v1alpha1.BindingStatus{
			{Final: true}, {Step: "s", Since: at(0), Next: at(1)}, {Step: "s", Paused: true, HeldBy: "paused", Since: at(-9), Next: at(-8)},
		}}},
		{Status: v1alpha1.WebhookPolicyStatus{Bindings: []v1alpha1.BindingStatus{
			{Step: "s", HeldBy: "x", Since: at(-3), Next: at(-1)}, {Step: "s", HeldBy: "x", Since: at(-3), Next: at(-2)},
		}}},
	}
	m := NewMetrics(prometheus.NewRegistry(), func() []*v1alpha1.WebhookPolicy { return policies })
	m.count(start())
	got := map[string]float64{"overdue": testutil.ToFloat64(m.overdue)}
	for _, state := range []string{"step", "held", "paused", "final"} {
		got[state] = testutil.ToFloat64(m.rollouts.WithLabelValues(state))
	}
	if diff := cmp.Diff(map[string]float64{"step": 1, "held": 2, "paused": 1, "final": 1, "overdue": 1}, got); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
}
