package typechecking

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/openapi"
	"k8s.io/client-go/rest"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/internal/events"
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
	os.Exit(cptest.Main(m, controlplane.Options{}, func(cp *controlplane.ControlPlane) { apiServer = cp.Config() }))
}

// served are the resources of the API server.
type served struct {
	lists     Served
	listeners events.Broadcaster
}

func (s *served) Served() Served                                { return s.lists }
func (s *served) Subscribe(ctx context.Context) <-chan struct{} { return s.listeners.Subscribe(ctx) }

func discover(t *testing.T) *served {
	t.Helper()
	_, lists, err := kubernetes.NewForConfigOrDie(apiServer).Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	s := &served{lists: Served{}}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		s.lists[gv] = list.APIResources
	}
	return s
}

func checkerOf(t *testing.T, client openapi.ClientWithContext) *Checker {
	t.Helper()
	if client == nil {
		client = kubernetes.NewForConfigOrDie(apiServer).Discovery().OpenAPIV3WithContext(t.Context())
	}
	return New(Options{Client: client, Resources: discover(t), Engines: policy.NewCompilerFor(36), Log: logr.Discard()})
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

func policyFor(name string, validations ...v1alpha1.Validation) *v1alpha1.WebhookPolicy {
	return &v1alpha1.WebhookPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Generation: 1},
		Spec: v1alpha1.WebhookPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule: admissionregistrationv1.Rule{
						APIGroups:   []string{"apps"},
						APIVersions: []string{"v1"},
						Resources:   []string{"statefulsets", "deployments"},
					},
				},
			}}},
			Validations: validations,
		},
	}
}

func found(c *Checker, p *v1alpha1.WebhookPolicy) func() *admissionregistrationv1.TypeChecking {
	return func() *admissionregistrationv1.TypeChecking { return c.Found(p) }
}

// TestWarningsOfKubernetes compares the expressions with warnings with those in which the
// cluster's own controller finds problems.
func TestWarningsOfKubernetes(t *testing.T) {
	v := func(expression string) v1alpha1.Validation {
		return v1alpha1.Validation{Expression: expression}
	}
	tests := map[string]*v1alpha1.WebhookPolicy{
		"right": policyFor("right", v("object.spec.replicas <= 5")),
		"wrong": policyFor("wrong", v("object.spec.replicas <= 5"), v("object.spec.replicsa <= 5"),
			v1alpha1.Validation{Expression: "object.spec.replicas > '5'", MessageExpression: "'no ' + object.spec.replicas"}),
		"params":  policyFor("params", v("params.data.max == 5")),
		"unknown": policyFor("unknown", v("object.nothing == 1")),
	}
	tests["params"].Spec.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
	tests["unknown"].Spec.MatchConstraints.ResourceRules[0].Resources = []string{"nothings"}
	c := checkerOf(t, nil)
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
			if _, err := client.Create(t.Context(), native(p), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			var want *admissionregistrationv1.TypeChecking
			g.Eventually(func() (*admissionregistrationv1.TypeChecking, error) {
				stored, err := client.Get(t.Context(), p.Name, metav1.GetOptions{})
				if err != nil {
					return nil, err
				}
				want = stored.Status.TypeChecking
				return want, nil
			}).WithTimeout(eventually).WithPolling(pause).ShouldNot(BeNil())
			g.Eventually(found(c, p)).WithTimeout(eventually).WithPolling(pause).ShouldNot(BeNil())
			if diff := cmp.Diff(fieldsOf(want), fieldsOf(c.Found(p))); diff != "" {
				t.Errorf("expressions with warnings (-native +ours):\n%s", diff)
			}
			if diff := cmp.Diff(before, p); diff != "" {
				t.Errorf("the policy was changed:\n%s", diff)
			}
			if name == "wrong" && len(want.ExpressionWarnings) < 3 {
				t.Errorf("the comparison is of %d warnings", len(want.ExpressionWarnings))
			}
		})
	}
}

// native is the part of a policy that the API server checks, in its own form.
func native(p *v1alpha1.WebhookPolicy) *admissionregistrationv1.ValidatingAdmissionPolicy {
	return &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: p.Name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			ParamKind: p.Spec.ParamKind, MatchConstraints: p.Spec.MatchConstraints, Validations: p.Spec.NativeValidations(),
		},
	}
}

func fieldsOf(found *admissionregistrationv1.TypeChecking) (fields []string) {
	for _, w := range found.ExpressionWarnings {
		fields = append(fields, w.FieldRef)
	}
	return fields
}

// list is the documents that an API server has, and counts what is read.
type list struct {
	mu     sync.Mutex
	text   string
	lists  int
	reads  int
	panics bool
}

func (l *list) PathsWithContext(context.Context) (map[string]openapi.GroupVersionWithContext, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lists++
	if l.panics {
		panic("lost")
	}
	return map[string]openapi.GroupVersionWithContext{"apis/apps/v1": document{l, l.text}}, nil
}

func (l *list) publish(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = text
}

func (l *list) count() (lists, reads int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lists, l.reads
}

// document is one of a list. The text is its hash too.
type document struct {
	list *list
	text string
}

func (d document) SchemaWithContext(context.Context, string) ([]byte, error) {
	d.list.mu.Lock()
	defer d.list.mu.Unlock()
	d.list.reads++
	return []byte(d.text), nil
}

func (d document) ServerRelativeURL() string { return d.text }

// apps is the document of a group with one field in its kinds.
func apps(field string) string {
	schemas := map[string]any{}
	for _, kind := range []string{"Deployment", "StatefulSet"} {
		schemas[kind] = map[string]any{
			"type": "object", "properties": map[string]any{field: map[string]any{"type": "integer"}},
			"x-kubernetes-group-version-kind": []map[string]string{{"group": "apps", "version": "v1", "kind": kind}},
		}
	}
	text, err := json.Marshal(map[string]any{"components": map[string]any{"schemas": schemas}})
	if err != nil {
		panic(err)
	}
	return string(text)
}

func TestEachGenerationIsCheckedOnce(t *testing.T) {
	l := &list{text: apps("a")}
	c := checkerOf(t, l)
	run(t, c)
	notified := c.Subscribe(t.Context())
	p := policyFor("p", v1alpha1.Validation{Expression: "object.b == 1"})
	checked := policyFor("checked", v1alpha1.Validation{Expression: "object.b == 1"})
	checked.Status = checkedStatus()
	plain := policyFor("plain")
	upgraded := policyFor("upgraded", v1alpha1.Validation{Expression: "object.metadata.labels.a == 'b'"})
	upgraded.Spec.MatchConstraints.ResourceRules[0].Rule = admissionregistrationv1.Rule{
		APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}}
	upgraded.Status = checkedStatus()
	upgraded.Status.Conditions = nil
	g := NewWithT(t)
	for range 3 {
		c.Want([]*v1alpha1.WebhookPolicy{p, checked, plain, upgraded})
		g.Eventually(func() any { return c.Rehearsed(upgraded) }).WithTimeout(eventually).WithPolling(pause).ShouldNot(BeNil())
		g.Eventually(found(c, p)).WithTimeout(eventually).WithPolling(pause).ShouldNot(BeNil())
		g.Eventually(found(c, plain)).WithTimeout(eventually).WithPolling(pause).ShouldNot(BeNil())
	}
	g.Eventually(notified).WithTimeout(eventually).Should(Receive())
	// The rehearsal of one policy can take longer than a list is used.
	if lists, reads := l.count(); lists > 2 || reads != 1 {
		t.Errorf("%d lists and %d documents were read for two policies, want one document", lists, reads)
	}
	if got := c.Found(p).ExpressionWarnings; len(got) != 1 {
		t.Errorf("got %v, want one warning", got)
	}
	if got := c.Found(checked).ExpressionWarnings; len(got) != 0 {
		t.Errorf("a policy with a result in its status was checked: %v", got)
	}
	earlier := policyFor("earlier", v1alpha1.Validation{Expression: "object.b == 1"})
	earlier.Status = checkedStatus()
	earlier.Status.Conditions = nil
	if c.Found(earlier) == nil {
		t.Error("after an upgrade, a policy has no result of the check of types until it is rehearsed")
	}
	if c.Rehearsed(checked) != nil {
		t.Error("a policy whose status has the condition was rehearsed again")
	}
	if got := c.Rehearsed(upgraded); got == nil || len(got.Warnings) != 1 || !strings.Contains(got.Warnings[0].Text, "no such key: labels") {
		t.Errorf("a policy that was checked before an upgrade is rehearsed with %+v, want one finding", got)
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
		t.Error("the result of a policy that is gone is kept")
	}
}

// checkedStatus is the status of a policy that an earlier leader has checked.
func checkedStatus() v1alpha1.WebhookPolicyStatus {
	return v1alpha1.WebhookPolicyStatus{
		ObservedGeneration: 1, TypeChecking: &admissionregistrationv1.TypeChecking{},
		Conditions: []metav1.Condition{{Type: v1alpha1.ConditionRehearsed, ObservedGeneration: 1}},
	}
}

// The resource of a new kind appears before its schema.
func TestKindThatIsNewIsCheckedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		apps1 := schema.GroupVersion{Group: "apps", Version: "v1"}
		l, s := &list{text: "{}"}, &served{lists: Served{}}
		c := New(Options{Client: l, Resources: s, Engines: policy.NewCompiler(), Log: logr.Discard()})
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = c.Run(ctx) })
		defer running.Wait()
		defer stop()
		p := policyFor("p", v1alpha1.Validation{Expression: "object.b == 1"})
		c.Want([]*v1alpha1.WebhookPolicy{p})
		synctest.Wait()
		if got := c.Found(p); got == nil || len(got.ExpressionWarnings) > 0 {
			t.Fatalf("before the kind is there: %v", got)
		}
		s.lists = Served{apps1: {{Name: "deployments", Kind: "Deployment"}, {Name: "statefulsets", Kind: "StatefulSet"}}}
		s.listeners.Notify()
		synctest.Wait()
		if got := c.Found(p); len(got.ExpressionWarnings) > 0 {
			t.Fatalf("before the schema is there: %v", got)
		}
		l.publish(apps("a"))
		time.Sleep(retryFirst)
		synctest.Wait()
		if got := c.Found(p); len(got.ExpressionWarnings) != 1 {
			t.Fatalf("afterwards: %v", got)
		}
		before, _ := l.count()
		time.Sleep(time.Hour)
		if after, _ := l.count(); after != before {
			t.Errorf("the documents were listed %d times in an hour without anything to check", after-before)
		}
	})
}

// engine is that of the cluster.
type engine struct{ atomic.Int64 }

func (e *engine) Engine() policy.Engine { return policy.Engine(e.Load()) }

// After a change of the cluster's version, what depends on it is checked again, although a
// result for the generation is in memory or in a status.
func TestVersionThatChanges(t *testing.T) {
	missing := []string{"Kubernetes 1.36 and before have no function includes(), and 1.37 has: use the operator in"}
	earlier := []string{"an earlier result"}
	tests := map[string]struct {
		expression            string
		status                []string // of an earlier leader; nil if it has not checked the policy
		from, to              policy.Engine
		wantBefore, wantAfter []string
		wantChanges           int // notifications after the change
	}{
		"a function that the new version has": {
			expression:  "[1].includes(1)",
			from:        36,
			to:          37,
			wantBefore:  missing,
			wantChanges: 1,
		},
		"a function that the new version has not": {
			expression:  "[1].includes(1)",
			from:        37,
			to:          36,
			wantAfter:   missing,
			wantChanges: 1,
		},
		"a result of an earlier leader": {
			expression:  "[1].includes(1)",
			status:      earlier,
			from:        37,
			to:          36,
			wantAfter:   missing,
			wantChanges: 1,
		},
		"no change": {expression: "[1].includes(1)", from: 36, to: 36, wantBefore: missing, wantAfter: missing},
		"a warning that all versions have": {
			expression: "object.b.orValue(1) == 1",
			status:     earlier,
			from:       36,
			to:         37,
			wantBefore: earlier,
			wantAfter:  earlier,
		},
		"an expression that does not depend on it": {
			expression: "object.b == 1",
			status:     earlier,
			from:       36,
			to:         37,
			wantBefore: earlier,
			wantAfter:  earlier,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var e engine
				e.Store(int64(tt.from))
				c := New(Options{Client: &list{text: apps("b")}, Engines: &e, Log: logr.Discard(),
					Resources: &served{
						lists: Served{
							{Group: "apps", Version: "v1"}: {
								{Name: "deployments", Kind: "Deployment"}, {Name: "statefulsets", Kind: "StatefulSet"},
							},
						},
					}})
				run(t, c)
				p := policyFor("p", v1alpha1.Validation{Expression: tt.expression})
				if tt.status != nil {
					p.Status = checkedStatus()
					for _, text := range tt.status {
						p.Status.TypeChecking.ExpressionWarnings = append(p.Status.TypeChecking.ExpressionWarnings,
							admissionregistrationv1.ExpressionWarning{Warning: text})
					}
				}
				c.Want([]*v1alpha1.WebhookPolicy{p})
				synctest.Wait()
				if diff := cmp.Diff(tt.wantBefore, textsOf(c.Found(p))); diff != "" {
					t.Errorf("before:\n%s", diff)
				}
				changes := c.Subscribe(t.Context())
				e.Store(int64(tt.to))
				if c.Found(p) == nil {
					t.Error("the previous result is forgotten before there is another")
				}
				c.Want([]*v1alpha1.WebhookPolicy{p})
				synctest.Wait()
				if diff := cmp.Diff(tt.wantAfter, textsOf(c.Found(p))); diff != "" {
					t.Errorf("after:\n%s", diff)
				}
				if len(changes) != tt.wantChanges {
					t.Errorf("%d notifications, want %d", len(changes), tt.wantChanges)
				}
			})
		})
	}
}

func textsOf(found *admissionregistrationv1.TypeChecking) (texts []string) {
	for _, w := range found.ExpressionWarnings {
		texts = append(texts, w.Warning)
	}
	return texts
}

func TestDocuments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &list{text: apps("a")}
		d := newDocuments(l)
		read := func(wantLists, wantReads int) {
			t.Helper()
			if _, err := d.get(t.Context(), schema.GroupVersion{Group: "apps", Version: "v1"}); err != nil {
				t.Fatal(err)
			}
			if lists, reads := l.count(); lists != wantLists || reads != wantReads {
				t.Errorf("%d lists and %d documents were read, want %d and %d", lists, reads, wantLists, wantReads)
			}
		}
		read(1, 1)
		read(1, 1)
		time.Sleep(2 * listFor)
		read(2, 1)
		l.publish(apps("b"))
		time.Sleep(2 * listFor)
		read(3, 2)
		if found, err := d.get(t.Context(), schema.GroupVersion{Group: "other", Version: "v1"}); found != nil || err != nil {
			t.Errorf("an unknown group has the document %v, %v", found, err)
		}
		time.Sleep(3 * keepFor)
		synctest.Wait() // for the race detector: the timer's goroutine wrote what is read next
		if len(d.kept) > 0 {
			t.Error("a document is kept that is not used")
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		d.lock <- struct{}{}
		if _, err := d.get(ctx, schema.GroupVersion{}); !errors.Is(err, context.Canceled) {
			t.Errorf("get() = %v while another reads", err)
		}
		<-d.lock
	})
}

func TestPanicIsNoWarning(t *testing.T) {
	l := &list{panics: true}
	c := checkerOf(t, l)
	run(t, c)
	p := policyFor("p", v1alpha1.Validation{Expression: "true"})
	c.Want([]*v1alpha1.WebhookPolicy{p})
	NewWithT(t).Eventually(found(c, p)).WithTimeout(eventually).WithPolling(pause).ShouldNot(BeNil())
	if lists, _ := l.count(); lists == 0 {
		t.Error("nothing panicked")
	}
}

func TestWarningsAreBounded(t *testing.T) {
	// A longer one would be refused, and with it all of the policy's status.
	crd, err := os.ReadFile("../../config/crd/bases/admission.ostiary.dev_webhookpolicies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if _, after, ok := strings.Cut(string(crd), " warning:\n"); !ok ||
		!strings.Contains(after[:min(len(after), 400)], fmt.Sprintf("maxLength: %d\n", maxWarning)) {
		t.Errorf("the kind has no room for a warning of %d bytes", maxWarning)
	}
}
