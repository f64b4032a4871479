package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/test/manager"
)

// readyTimeout is how long a batch may take to come into force.
const readyTimeout = 5 * time.Minute

// Namespaces in which a marker says that the API server knows a batch.
const (
	validatingMarker = "marker-validating"
	mutatingMarker   = "marker-mutating"
)

// engine is a side, and how policies come into force on it.
type engine struct {
	*side
	objects func(*v1alpha1.WebhookPolicy) ([]*unstructured.Unstructured, error)
	// ready returns when all that was created has been dealt with, and says
	// which policies the engine has refused since.
	ready   func(ctx context.Context, created []*v1alpha1.WebhookPolicy) (refused map[string]string, err error)
	markers func(batch int) ([]*unstructured.Unstructured, error)
}

// installed is what a batch has put into an API server.
type installed struct {
	objects []*unstructured.Unstructured
	refused map[string]string // by the name of the policy
}

// install puts policies into force: the API server acts on every one of them
// when it returns, and on none of those deleted before.
func (e *engine) install(ctx context.Context, batch int, policies []*v1alpha1.WebhookPolicy) (*installed, error) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	out := &installed{refused: map[string]string{}}
	var mu sync.Mutex
	group, creating := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, p := range policies {
		group.Go(func() error {
			created, refusal, err := e.createPolicy(creating, p)
			mu.Lock()
			defer mu.Unlock()
			out.objects = append(out.objects, created...)
			if refusal != "" {
				out.refused[p.Name] = refusal
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return out, err
	}
	return out, e.await(ctx, batch, policies, out)
}

// createPolicy creates all that an engine has for a policy, until the API
// server refuses some of it.
func (e *engine) createPolicy(ctx context.Context,
	p *v1alpha1.WebhookPolicy) (created []*unstructured.Unstructured, refusal string, err error) {
	objects, err := e.objects(p)
	if err != nil {
		return nil, "", err
	}
	for _, o := range objects {
		err := e.create(ctx, o)
		switch {
		case apierrors.IsInvalid(err):
			return created, err.Error(), nil
		case err != nil:
			return created, "", err
		}
		created = append(created, o)
	}
	return created, "", nil
}

func (e *engine) await(ctx context.Context, batch int, policies []*v1alpha1.WebhookPolicy, out *installed) error {
	if e.ready != nil {
		var accepted []*v1alpha1.WebhookPolicy
		for _, p := range policies {
			if out.refused[p.Name] == "" {
				accepted = append(accepted, p)
			}
		}
		refused, err := e.ready(ctx, accepted)
		if err != nil {
			return err
		}
		for name, why := range refused {
			out.refused[name] = why
		}
	}
	markers, err := e.markers(batch)
	if err != nil {
		return err
	}
	for _, m := range markers {
		if err := e.create(ctx, m); err != nil {
			return err
		}
		out.objects = append(out.objects, m)
	}
	for _, namespace := range []string{mutatingMarker, validatingMarker} {
		if err := e.awaitMarker(ctx, namespace, batch); err != nil {
			return err
		}
	}
	return nil
}

func markerText(batch int) string { return fmt.Sprintf("batch-%d-is-in-force", batch) }

// awaitMarker asks until the answer shows that a batch's marker is enforced.
// Configurations become known in the order in which they were made.
func (e *engine) awaitMarker(ctx context.Context, namespace string, batch int) error {
	ask := Request{
		Method: http.MethodPost, Path: "/api/v1/namespaces/" + namespace + "/configmaps",
		Body: json.RawMessage(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"marker"}}`),
	}
	for {
		r, err := e.send(ctx, ask)
		if err != nil {
			return err
		}
		if strings.Contains(string(r.body), markerText(batch)) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for batch %d of %s in %s, last answer %s: %w", batch, e.name, namespace, r.body, ctx.Err())
		case <-time.After(30 * time.Millisecond):
		}
	}
}

func newNative(s *side) *engine {
	return &engine{side: s, objects: nativeObjects, markers: nativeMarkers}
}

func nativeMarkers(batch int) ([]*unstructured.Unstructured, error) {
	spec := v1alpha1.WebhookPolicySpec{MatchConstraints: markerMatch(validatingMarker)}
	spec.Validations = []v1alpha1.Validation{{Expression: "false", Message: markerText(batch)}}
	validating := &v1alpha1.WebhookPolicy{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("marker-%d", batch)}, Spec: spec}
	mutating := validating.DeepCopy()
	mutating.Spec.MatchConstraints = markerMatch(mutatingMarker)
	mutating.Spec.Validations = nil
	mutating.Spec.Mutations = []admissionregistrationv1.Mutation{{
		PatchType: admissionregistrationv1.PatchTypeJSONPatch,
		JSONPatch: &admissionregistrationv1.JSONPatch{
			Expression: `[JSONPatch{op: "add", path: "/data", value: {"marker": "` + markerText(batch) + `"}}]`,
		},
	}}
	first, err := nativeObjects(validating)
	if err != nil {
		return nil, err
	}
	second, err := nativeObjects(mutating)
	return append(first, second...), err
}

func markerMatch(namespace string) *admissionregistrationv1.MatchResources {
	return &admissionregistrationv1.MatchResources{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": namespace}},
		ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
			RuleWithOperations: admissionregistrationv1.RuleWithOperations{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			},
		}},
	}
}

func newOstiary(s *side) *engine {
	e := &engine{side: s, markers: webhookMarkers}
	e.objects = func(p *v1alpha1.WebhookPolicy) ([]*unstructured.Unstructured, error) {
		o, err := toUnstructured(p)
		return []*unstructured.Unstructured{o}, err
	}
	e.ready = e.policiesReady
	return e
}

// readyWithin is how long a policy may take to be Ready; then it counts as
// refused, which the report shows.
const readyWithin = 2 * time.Minute

// policiesReady waits until every policy is Ready or Stalled.
func (e *engine) policiesReady(ctx context.Context, created []*v1alpha1.WebhookPolicy) (map[string]string, error) {
	late := time.After(readyWithin)
	resource := e.dynamic.Resource(v1alpha1.GroupVersion.WithResource("webhookpolicies"))
	for {
		list, err := resource.List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("listing the policies: %w", err)
		}
		refused, waiting, err := readiness(list.Items, created)
		if err != nil || len(waiting) == 0 {
			return refused, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting until %d policies are Ready: %w", len(waiting), ctx.Err())
		case <-late:
			for name, why := range waiting {
				refused[name] = "not Ready after " + readyWithin.String() + ": " + why + e.logged(why)
			}
			return refused, nil
		case <-time.After(100 * time.Millisecond):
		}
	}
}

var configuration = regexp.MustCompile(`ostiary-(mutate|validate)-\S+`)

// logged is what the manager's log has of the configuration that a policy waits
// for: a run at random cannot be repeated to find out.
func (e *engine) logged(why string) string {
	name := configuration.FindString(why)
	content, err := os.ReadFile(e.plane.LogFile(manager.Name))
	if name == "" || err != nil {
		return ""
	}
	var lines []string
	for line := range strings.Lines(string(content)) {
		if strings.Contains(line, name) || strings.Contains(line, `"level":"error"`) {
			lines = append(lines, "\n"+strings.TrimSpace(line))
		}
	}
	return strings.Join(lines[max(0, len(lines)-10):], "")
}

// neverReady begins what is said of a policy that will not be Ready, but is in
// force: the kind of its params does not exist, or the kind that it mutates has
// no schema, as the options of a connection.
var neverReady = regexp.MustCompile(`^the API server has no kind |^the schema of PodExecOptions in v1 is missing`)

func readiness(items []unstructured.Unstructured, created []*v1alpha1.WebhookPolicy) (refused, waiting map[string]string, err error) {
	statuses := map[string]v1alpha1.WebhookPolicyStatus{}
	for _, item := range items {
		var p v1alpha1.WebhookPolicy
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, &p); err != nil {
			return nil, nil, fmt.Errorf("reading a policy: %w", err)
		}
		statuses[p.Name] = p.Status
	}
	refused, waiting = map[string]string{}, map[string]string{}
	for _, p := range created {
		conditions := statuses[p.Name].Conditions
		ready := apimeta.FindStatusCondition(conditions, v1alpha1.ConditionReady)
		switch {
		case ready != nil && ready.Status == metav1.ConditionTrue:
		case ready != nil && apimeta.IsStatusConditionTrue(conditions, v1alpha1.ConditionRegistered) && neverReady.MatchString(ready.Message):
		case apimeta.IsStatusConditionTrue(conditions, v1alpha1.ConditionStalled):
			refused[p.Name] = apimeta.FindStatusCondition(conditions, v1alpha1.ConditionAccepted).Message
		case ready != nil:
			waiting[p.Name] = ready.Message
		default:
			waiting[p.Name] = "no status"
		}
	}
	return refused, waiting, nil
}

// webhookMarkers are webhooks without a server: a call that fails shows that
// the API server has read all configurations up to this one.
func webhookMarkers(batch int) ([]*unstructured.Unstructured, error) {
	name := fmt.Sprintf("marker-%d", batch)
	objects := []runtime.Object{
		&admissionregistrationv1.MutatingWebhookConfiguration{
			TypeMeta: typeOf("MutatingWebhookConfiguration"), ObjectMeta: metav1.ObjectMeta{Name: name},
			Webhooks: []admissionregistrationv1.MutatingWebhook{{
				Name: name + ".marker.test", ClientConfig: noServer(batch), Rules: markerRules(),
				NamespaceSelector: markerMatch(mutatingMarker).NamespaceSelector,
				SideEffects:       new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
			}},
		},
		&admissionregistrationv1.ValidatingWebhookConfiguration{
			TypeMeta: typeOf("ValidatingWebhookConfiguration"), ObjectMeta: metav1.ObjectMeta{Name: name},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{
				Name: name + ".marker.test", ClientConfig: noServer(batch), Rules: markerRules(),
				NamespaceSelector: markerMatch(validatingMarker).NamespaceSelector,
				SideEffects:       new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
			}},
		},
	}
	var out []*unstructured.Unstructured
	var errs []error
	for _, o := range objects {
		u, err := toUnstructured(o)
		out, errs = append(out, u), append(errs, err)
	}
	return out, errors.Join(errs...)
}

// noServer is an address where nothing listens; its path stands in the error.
func noServer(batch int) admissionregistrationv1.WebhookClientConfig {
	url := "https://127.0.0.1:1/" + markerText(batch)
	return admissionregistrationv1.WebhookClientConfig{URL: &url}
}

func markerRules() []admissionregistrationv1.RuleWithOperations {
	return []admissionregistrationv1.RuleWithOperations{markerMatch("").ResourceRules[0].RuleWithOperations}
}
