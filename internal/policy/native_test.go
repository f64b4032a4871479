package policy

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	webhookgeneric "k8s.io/apiserver/pkg/admission/plugin/webhook/generic"
	webhookrequest "k8s.io/apiserver/pkg/admission/plugin/webhook/request"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/nativeengine"
	"github.com/ostiary/ostiary/internal/response"
	"github.com/ostiary/ostiary/internal/truncate"
)

// The oracle: the API server's own engine for ValidatingAdmissionPolicy, run in
// this process on the objects as the API server holds them, which are Go
// structs for built-in kinds. Our side gets the review that the API server's
// own code makes of the same request, as JSON.

// input is one API request.
type input struct {
	operation   admission.Operation
	object, old runtime.Object
	kind        schema.GroupVersionKind
	resource    schema.GroupVersionResource
	subresource string
	namespace   string
	name        string
	options     runtime.Object
	dryRun      bool
	user        user.Info
	// sent is the resource and kind that the webhook's rule asks for, where
	// that is not the one of the request.
	sentResource schema.GroupVersionResource
	sentKind     schema.GroupVersionKind
}

func (in input) attributes() admission.Attributes {
	return admission.NewAttributesRecord(in.object, in.old, in.kind, in.namespace, in.name, in.resource, in.subresource,
		in.operation, in.options, in.dryRun, in.user)
}

// review is the request as it arrives over the wire.
func (in input) review(tb testing.TB) *admissionv1.AdmissionRequest {
	tb.Helper()
	resource, kind := in.sentResource, in.sentKind
	if resource.Empty() {
		resource, kind = in.resource, in.kind
	}
	versioned, err := admission.NewVersionedAttributes(in.attributes(), kind, testInterfaces())
	if err != nil {
		tb.Fatal(err)
	}
	review := webhookrequest.CreateV1AdmissionReview("7e5a", versioned,
		&webhookgeneric.WebhookInvocation{Resource: resource, Subresource: in.subresource, Kind: kind})
	data, err := json.Marshal(review)
	if err != nil {
		tb.Fatal(err)
	}
	var out admissionv1.AdmissionReview
	if err := json.Unmarshal(data, &out); err != nil {
		tb.Fatal(err)
	}
	return out.Request
}

// outcome is what a client and the audit log see of an answer.
type outcome struct {
	Allowed           bool
	Code              int32
	Reason            metav1.StatusReason
	Message           string
	Name, Group, Kind string
	Warnings          []string
	Annotations       map[string]string // by the key as we write it
}

func (o outcome) String() string {
	if o.Allowed {
		return "allowed"
	}
	return fmt.Sprintf("%d %s: %s", o.Code, o.Reason, o.Message)
}

// oracle is the API server's engine for some policies.
type oracle struct {
	engine *nativeengine.Engine
}

// newOracle compiles policies. One that does not compile fails when it is evaluated, as in
// an API server.
func newOracle(policies []*v1alpha1.WebhookPolicy, w *world) *oracle {
	var all []nativeengine.Validating
	for _, p := range policies {
		all = append(all, nativeengine.Validating{Policy: nativePolicy(p), Bindings: nativeBindings(p)})
	}
	engine, _ := w.native().CompileValidating(all...)
	return &oracle{engine}
}

// with is the same engine with the bindings of policies, which are otherwise
// those that it was made of.
func (o *oracle) with(policies []*v1alpha1.WebhookPolicy) *oracle {
	var bindings [][]*admissionregistrationv1.ValidatingAdmissionPolicyBinding
	for _, p := range policies {
		bindings = append(bindings, nativeBindings(p))
	}
	return &oracle{o.engine.WithBindings(bindings...)}
}

// nativePolicy is a policy as the API server stores it, defaults filled in.
func nativePolicy(p *v1alpha1.WebhookPolicy) *admissionregistrationv1.ValidatingAdmissionPolicy {
	p = p.DeepCopy()
	failurePolicy := p.Spec.EffectiveFailurePolicy()
	return &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: p.ObjectMeta,
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			ParamKind:        p.Spec.ParamKind,
			MatchConstraints: p.Spec.MatchConstraints,
			MatchConditions:  p.Spec.MatchConditions,
			Variables:        p.Spec.Variables,
			Validations:      p.Spec.NativeValidations(),
			AuditAnnotations: p.Spec.AuditAnnotations,
			FailurePolicy:    &failurePolicy,
		}}
}

func nativeBindings(p *v1alpha1.WebhookPolicy) []*admissionregistrationv1.ValidatingAdmissionPolicyBinding {
	var out []*admissionregistrationv1.ValidatingAdmissionPolicyBinding
	for _, b := range p.Spec.Bindings {
		spec := admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName:        p.Name,
			ValidationActions: b.ValidationActions,
			ParamRef:          b.ParamRef,
			MatchResources:    b.MatchResources,
		}
		out = append(out, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: b.Name}, Spec: spec})
	}
	return out
}

func (o *oracle) decide(tb testing.TB, in input) outcome {
	tb.Helper()
	native, err := o.engine.Evaluate(tb.Context(), in.attributes())
	if err != nil {
		tb.Fatalf("the oracle failed: %v", err)
	}
	out := outcome{Allowed: native.Denial == nil, Annotations: annotationsAsOurs(native.AuditAnnotations)}
	for _, w := range native.Warnings {
		out.Warnings = append(out.Warnings, asOurs(w))
	}
	if out.Allowed {
		return out
	}
	s := native.Denial
	_, message, framed := strings.Cut(s.Message, " is forbidden: ")
	if !framed {
		tb.Fatalf("the oracle's message has no frame: %q", s.Message)
	}
	out.Code, out.Reason, out.Message = s.Code, s.Reason, asOurs(message)
	out.Name, out.Group, out.Kind = s.Details.Name, s.Details.Group, s.Details.Kind
	return out
}

// asOurs names the kind of policy as we do.
func asOurs(message string) string {
	return strings.Replace(message, "ValidatingAdmissionPolicy '", "WebhookPolicy '", 1)
}

// annotationsAsOurs returns audit annotations by the keys as we write them.
func annotationsAsOurs(annotations map[string]string) map[string]string {
	var out map[string]string
	for key, value := range annotations {
		if out == nil {
			out = map[string]string{}
		}
		if key == "validation.policy.admission.k8s.io/"+response.FailureKey {
			key = response.FailureKey
		}
		out[strings.Replace(key, "/", ".", 1)] = value
	}
	return out
}

// interfaces converts between versions whose JSON is the same.
type interfaces struct {
	mapper runtime.EquivalentResourceMapper
}

func testInterfaces() interfaces {
	registry := runtime.NewEquivalentResourceRegistry()
	for _, version := range []string{"v1", "v1beta1"} {
		gv := schema.GroupVersion{Group: "apps", Version: version}
		registry.RegisterKindFor(gv.WithResource("deployments"), "", gv.WithKind("Deployment"))
	}
	return interfaces{mapper: onlyEquivalent{registry}}
}

// onlyEquivalent relates apps/v1 and apps/v1beta1, which the plain registry
// knows only as resources of one name in one group.
type onlyEquivalent struct {
	runtime.EquivalentResourceRegistry
}

func (m onlyEquivalent) EquivalentResourcesFor(resource schema.GroupVersionResource, subresource string) []schema.GroupVersionResource {
	if resource.Group != "apps" || resource.Resource != "deployments" {
		return nil
	}
	return []schema.GroupVersionResource{
		{Group: "apps", Version: "v1", Resource: "deployments"},
		{Group: "apps", Version: "v1beta1", Resource: "deployments"},
	}
}

func (i interfaces) GetObjectCreater() runtime.ObjectCreater                       { return scheme.Scheme }
func (i interfaces) GetObjectTyper() runtime.ObjectTyper                           { return scheme.Scheme }
func (i interfaces) GetObjectDefaulter() runtime.ObjectDefaulter                   { return scheme.Scheme }
func (i interfaces) GetObjectConvertor() runtime.ObjectConvertor                   { return jsonConvertor{scheme.Scheme} }
func (i interfaces) GetEquivalentResourceMapper() runtime.EquivalentResourceMapper { return i.mapper }

type jsonConvertor struct{ runtime.ObjectConvertor }

func (jsonConvertor) Convert(in, out, _ any) error {
	data, err := json.Marshal(in)
	if err != nil {
		return err
	}
	reflect.ValueOf(out).Elem().SetZero()
	return json.Unmarshal(data, out)
}

// decideOurs is the answer of this package.
func decideOurs(tb testing.TB, group *Group, in input, w *world) outcome {
	tb.Helper()
	raw := in.review(tb)
	resp, err := group.Validate(tb.Context(), raw, w.host())
	if err != nil {
		tb.Fatal(err)
	}
	if resp.UID != raw.UID {
		tb.Errorf("uid = %q, want %q", resp.UID, raw.UID)
	}
	delete(resp.AuditAnnotations, response.LeftOutKey) // the native engine says it in its own log
	out := outcome{Allowed: resp.Allowed, Warnings: resp.Warnings, Annotations: resp.AuditAnnotations}
	if resp.Allowed {
		if resp.Result != nil {
			tb.Errorf("an allowed request has the result %+v", resp.Result)
		}
		return out
	}
	s := resp.Result
	out.Code, out.Reason, out.Message = s.Code, s.Reason, s.Details.Causes[0].Message
	out.Name, out.Group, out.Kind = s.Details.Name, s.Details.Group, s.Details.Kind
	if !strings.HasPrefix(s.Message, out.Message) {
		tb.Errorf("message %q does not begin with the first cause %q", s.Message, out.Message)
	}
	return out
}

// ---- requests --------------------------------------------------------------

const podYAML = `
apiVersion: v1
kind: Pod
metadata:
  name: web
  namespace: shop
  uid: 0b1d
  creationTimestamp: "2026-01-02T03:04:05Z"
  labels: {team: shop, app.kubernetes.io/name: web}
  annotations: {example.com/note: "a\nb"}
spec:
  terminationGracePeriodSeconds: 30
  serviceAccountName: default
  securityContext: {}
  containers:
  - name: app
    image: registry.example/app:1
    ports: [{containerPort: 8080, protocol: TCP}]
    resources: {limits: {cpu: 500m, memory: 64Mi}, requests: {cpu: "1"}}
    livenessProbe: {httpGet: {path: /, port: http}, timeoutSeconds: 1}
    securityContext: {allowPrivilegeEscalation: false, runAsUser: 1000}
  - name: side
    image: docker.io/side
    readinessProbe: {tcpSocket: {port: 80}}
    resources: {}
`

const widgetYAML = `
apiVersion: example.com/v1
kind: Widget
metadata: {name: w, namespace: shop, labels: {team: shop}}
spec:
  ratio: 0.5
  count: 3
  big: 9007199254740993
  tiny: 1.0e-3
  mixed: [1, 2.5, x, null, true, {a: 1}]
  empty: {}
  none: null
`

func typed(tb testing.TB, text string) runtime.Object {
	tb.Helper()
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(text), nil, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return object
}

func custom(tb testing.TB, text string) runtime.Object {
	tb.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(data); err != nil {
		tb.Fatal(err)
	}
	return object
}

var alice = &user.DefaultInfo{
	Name:   "alice",
	UID:    "u1",
	Groups: []string{"devs", "system:authenticated"},
	Extra:  map[string][]string{"scopes": {"a", "b"}},
}

func podInput(tb testing.TB, operation admission.Operation) input {
	tb.Helper()
	in := input{
		operation: operation, kind: corev1.SchemeGroupVersion.WithKind("Pod"), resource: corev1.SchemeGroupVersion.WithResource("pods"),
		namespace: "shop", name: "web", user: alice,
	}
	old := typed(tb, strings.Replace(podYAML, "team: shop", "team: old", 1))
	options := func(kind string) metav1.TypeMeta { return metav1.TypeMeta{Kind: kind, APIVersion: "meta.k8s.io/v1"} }
	switch operation {
	case admission.Create:
		in.object, in.options = typed(tb, podYAML), &metav1.CreateOptions{TypeMeta: options("CreateOptions"), FieldManager: "kubectl"}
	case admission.Update:
		in.object, in.old, in.options = typed(tb, podYAML), old, &metav1.UpdateOptions{TypeMeta: options("UpdateOptions")}
	case admission.Delete:
		seconds := int64(5)
		in.old, in.options = old, &metav1.DeleteOptions{TypeMeta: options("DeleteOptions"), GracePeriodSeconds: &seconds}
	}
	return in
}

func deployment(tb testing.TB, version string) runtime.Object {
	tb.Helper()
	return typed(tb, "apiVersion: apps/"+version+
		"\nkind: Deployment\nmetadata: {name: web, namespace: shop, labels: {team: shop}}\n"+
		"spec: {replicas: 3, template: {spec: {containers: [{name: app, image: x}]}}}\n")
}

func testInputs(tb testing.TB) map[string]input {
	tb.Helper()
	with := func(in input, change func(*input)) input {
		change(&in)
		return in
	}
	create := podInput(tb, admission.Create)
	generated := typed(tb, podYAML).(*corev1.Pod)
	generated.Name, generated.GenerateName = "", "web-"
	return map[string]input{
		"create pod":   create,
		"update pod":   podInput(tb, admission.Update),
		"delete pod":   podInput(tb, admission.Delete),
		"dry run":      with(create, func(in *input) { in.dryRun = true }),
		"anonymous":    with(create, func(in *input) { in.user = &user.DefaultInfo{} }),
		"generateName": with(create, func(in *input) { in.object, in.name = generated, "" }),
		"no options":   with(create, func(in *input) { in.options = nil }),
		"connect exec": {
			operation: admission.Connect, kind: corev1.SchemeGroupVersion.WithKind("PodExecOptions"), resource: create.resource, subresource: "exec",
			namespace: "shop", name: "web", user: alice,
			object: &corev1.PodExecOptions{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodExecOptions"},
				Stdin:    true,
				Command:  []string{"sh"},
			},
		},
		"update status": with(podInput(tb, admission.Update), func(in *input) { in.subresource = "status" }),
		"create namespace": {
			operation: admission.Create, kind: corev1.SchemeGroupVersion.WithKind("Namespace"),
			resource:  corev1.SchemeGroupVersion.WithResource("namespaces"),
			namespace: "shop", name: "shop", user: alice,
			object: typed(tb, "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {team: shop}}\n"),
		},
		"create cluster role": {
			operation: admission.Create, kind: schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"},
			resource: schema.GroupVersionResource{
				Group:    "rbac.authorization.k8s.io",
				Version:  "v1",
				Resource: "clusterroles",
			}, name: "admin", user: alice,
			object: typed(tb, "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: admin}\n"+
				"rules: [{apiGroups: ['*'], resources: ['*'], verbs: [get]}]\n"),
		},
		"converted deployment": {
			operation: admission.Update, kind: schema.GroupVersionKind{Group: "apps", Version: "v1beta1", Kind: "Deployment"},
			resource:     schema.GroupVersionResource{Group: "apps", Version: "v1beta1", Resource: "deployments"},
			sentKind:     schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"},
			sentResource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"},
			namespace:    "shop", name: "web", user: alice, object: deployment(tb, "v1beta1"), old: deployment(tb, "v1beta1"),
		},
		"custom resource": {
			operation: admission.Create, kind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"},
			resource:  schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"},
			namespace: "shop", name: "w", user: alice, object: custom(tb, widgetYAML),
		},
	}
}

// allRules match every request of the tests in one version each.
func allRules() *admissionregistrationv1.MatchResources {
	rule := func(group, version string, resources ...string) admissionregistrationv1.NamedRuleWithOperations {
		return admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{version}, Resources: resources},
		}}
	}
	return &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{
		rule("", "v1", "pods", "pods/*", "namespaces"), rule("apps", "v1", "deployments", "deployments/*"),
		rule("rbac.authorization.k8s.io", "v1", "*"), rule("example.com", "*", "*/*"),
	}}
}

// policyFrom reads a spec; where it has no matchConstraints, it matches every
// request of the tests.
func policyFrom(tb testing.TB, name, spec string) *v1alpha1.WebhookPolicy {
	tb.Helper()
	p := &v1alpha1.WebhookPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
		tb.Fatalf("%s: %v", name, err)
	}
	if p.Spec.MatchConstraints == nil {
		p.Spec.MatchConstraints = allRules()
	}
	return p
}

// effects are the bindings to try each policy with.
func effects() map[string][]v1alpha1.Binding {
	type actions = []admissionregistrationv1.ValidationAction
	const deny, warn, audit = admissionregistrationv1.Deny, admissionregistrationv1.Warn, admissionregistrationv1.Audit
	return map[string][]v1alpha1.Binding{
		"deny":       {{Name: "b", ValidationActions: actions{deny}}},
		"warn":       {{Name: "b", ValidationActions: actions{warn}}},
		"audit":      {{Name: "b", ValidationActions: actions{audit}}},
		"deny+audit": {{Name: "b", ValidationActions: actions{deny, audit}}},
		"three bindings": {
			{
				Name:              "first",
				ValidationActions: actions{warn, audit},
			}, {Name: "second", ValidationActions: actions{deny, audit}}, {Name: "third", ValidationActions: actions{deny}},
		},
	}
}

// variant is a policy with other bindings and failurePolicy.
func variant(p *v1alpha1.WebhookPolicy, bindings []v1alpha1.Binding,
	failurePolicy admissionregistrationv1.FailurePolicyType) *v1alpha1.WebhookPolicy {
	p = p.DeepCopy()
	p.Spec.Bindings, p.Spec.FailurePolicy = bindings, &failurePolicy
	return p
}

func compare(t *testing.T, oracle *oracle, group *Group, in input) outcome {
	t.Helper()
	want := oracle.decide(t, in)
	got := decideOurs(t, group, in, testWorld)
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("our answer differs from the native engine's (-native +ours):\n%s", diff)
	}
	return want
}

var failurePolicies = []admissionregistrationv1.FailurePolicyType{admissionregistrationv1.Fail, admissionregistrationv1.Ignore}

// TestSameAnswerAsKubernetes puts each policy, with every failurePolicy and
// several bindings, before every kind of request, and compares with the native
// engine. Want is the native answer to want's request under Fail and Deny, so
// that a case cannot lose its point unnoticed.
func TestSameAnswerAsKubernetes(t *testing.T) {
	inputs := testInputs(t)
	for _, tc := range nativeCases {
		t.Run(tc.name, func(t *testing.T) {
			p := policyFrom(t, "p", tc.spec)
			for _, failurePolicy := range failurePolicies {
				oracle := newOracle([]*v1alpha1.WebhookPolicy{variant(p, nil, failurePolicy)}, testWorld)
				for effect, bindings := range effects() {
					policies := []*v1alpha1.WebhookPolicy{variant(p, bindings, failurePolicy)}
					oracle, group := oracle.with(policies), groupOf(t, policies)
					for name, in := range inputs {
						t.Run(fmt.Sprintf("%s/%s/%s", failurePolicy, effect, name), func(t *testing.T) {
							got := compare(t, oracle, group, in)
							if failurePolicy == admissionregistrationv1.Fail && effect == "deny" && name == tc.request() {
								const prefix = "WebhookPolicy 'p' with binding 'b' denied request: "
								if text := strings.Replace(got.String(), prefix, "", 1); !strings.Contains(text, tc.want) || tc.want == "" {
									t.Errorf("native answer = %.600s, want %s", text, tc.want)
								}
							}
						})
					}
				}
			}
		})
	}
}

// TestSameAnswerAsKubernetesForSeveralPolicies: the native message is that of the
// first denial; ours contains the others too.
func TestSameAnswerAsKubernetesForSeveralPolicies(t *testing.T) {
	var policies []*v1alpha1.WebhookPolicy
	for i, spec := range []string{
		"validations: [{expression: 'true'}]",
		"validations: [{expression: 'object.spec.nope == 1'}]\nfailurePolicy: Ignore",
		"validations: [{expression: 'false', message: warned}]",
		"validations: [{expression: 'false', message: first, reason: Unauthorized}, {expression: 'false', message: second}]",
		"validations: [{expression: 'object.spec.nope == 1'}]",
		"validations: [{expression: 'false', message: third, reason: Forbidden}]\n" +
			"matchConditions: [{name: pods, expression: 'request.resource.resource == \"pods\"'}]",
	} {
		p := policyFrom(t, fmt.Sprintf("p%d", i), spec)
		p.Spec.Bindings = effects()["deny+audit"]
		if i == 2 {
			p.Spec.Bindings = effects()["warn"]
		}
		policies = append(policies, p)
	}
	oracle := newOracle(policies, testWorld)
	slices.Reverse(policies) // the order they are given in does not matter
	group := groupOf(t, policies)
	for name, in := range testInputs(t) {
		t.Run(name, func(t *testing.T) {
			got := compare(t, oracle, group, in)
			if want := "WebhookPolicy 'p3' with binding 'b' denied request: first"; got.Message != want || got.Code != 401 {
				t.Errorf("native answer = %s, want 401 and %s", got, want)
			}
			resp, err := group.Validate(t.Context(), in.review(t), Environment{Now: time.Now, Namespaces: testNamespaces})
			if err != nil {
				t.Fatal(err)
			}
			want := []string{
				"p3' with binding 'b' denied request: first", "p3' with binding 'b' denied request: second",
				"p4' with binding 'b' denied request: expression 'object.spec.nope == 1'",
			}
			if in.resource.Resource == "pods" {
				want = append(want, "p5' with binding 'b' denied request: third")
			}
			lines := strings.Split(resp.Result.Message, "\n")
			if len(lines) != len(want) || len(resp.Result.Details.Causes) != len(want) {
				t.Fatalf("message = %q, causes = %+v, want %d of each", resp.Result.Message, resp.Result.Details.Causes, len(want))
			}
			for i := range want {
				if !strings.Contains(lines[i], want[i]) || resp.Result.Details.Causes[i].Message != lines[i] {
					t.Errorf("line %d = %q, cause %q, want %q", i, lines[i], resp.Result.Details.Causes[i].Message, want[i])
				}
			}
		})
	}
}

// TestSameAnswerAsKubernetesForTheBenchmarkPolicies runs the twenty real
// policies of the benchmark.
func TestSameAnswerAsKubernetesForTheBenchmarkPolicies(t *testing.T) {
	policies := loadSet(t, "B")
	for _, p := range policies {
		p.Spec.Bindings = effects()["three bindings"]
		p.Spec.MatchConstraints = allRules()
	}
	slices.SortFunc(policies, func(a, b *v1alpha1.WebhookPolicy) int { return strings.Compare(a.Name, b.Name) })
	oracle, group := newOracle(policies, testWorld), groupOf(t, policies)
	for name, in := range testInputs(t) {
		t.Run(name, func(t *testing.T) {
			if got := compare(t, oracle, group, in); got.Allowed {
				t.Error("the native engine allows it; the case shows nothing")
			}
		})
	}
}

// TestMissingNamespaceDiffers is the documented difference about
// namespaces: the native engine fails the whole request; here it is an error of the
// policies that read namespaceObject.
func TestMissingNamespaceDiffers(t *testing.T) {
	reader := "validations: [{expression: 'namespaceObject.metadata.name == \"shop\"'}]\n" +
		"bindings: [{name: b, validationActions: [Deny]}]\nfailurePolicy: "
	policies := map[string]struct {
		spec string
		want string
	}{
		"reads it, Fail":   {reader + "Fail", `denied request: getting namespace "gone": namespaces "gone" not found`},
		"reads it, Ignore": {reader + "Ignore", ""},
		"does not read it": {"validations: [{expression: 'true'}]\nbindings: [{name: b, validationActions: [Deny]}]", ""},
	}
	in := podInput(t, admission.Create)
	in.namespace = "gone"
	in.object = typed(t, strings.Replace(podYAML, "namespace: shop", "namespace: gone", 1))
	for name, tc := range policies {
		t.Run(name, func(t *testing.T) {
			p := []*v1alpha1.WebhookPolicy{policyFrom(t, "p", tc.spec)}
			native := newOracle(p, testWorld)
			out, err := native.engine.Evaluate(t.Context(), in.attributes())
			if err != nil || out.Denial == nil || out.Denial.Reason != metav1.StatusReasonNotFound {
				t.Errorf("native answer = %+v, %v, want not found", out, err)
			}
			got := decideOurs(t, groupOf(t, p), in, testWorld)
			if got.Allowed != (tc.want == "") || !strings.HasSuffix(got.Message, tc.want) {
				t.Errorf("answer = %s, want %q", got, tc.want)
			}
		})
	}
}

// TestComparingAnObjectWithAScalarDiffers is the documented difference about
// values: for a built-in kind, the engine of this release says "no
// such overload" where CEL says that values of two types are not equal. For
// custom resources, and for all kinds in the releases before it, it says what
// CEL says, as we do.
func TestComparingAnObjectWithAScalarDiffers(t *testing.T) {
	p := policyFrom(t, "p", `{validations: [{expression: 'object.spec == "x"'}], bindings: [{name: b, validationActions: [Deny]}]}`)
	policies := []*v1alpha1.WebhookPolicy{p}
	const subject = "WebhookPolicy 'p' with binding 'b' denied request: "
	const unequal = subject + `failed expression: object.spec == "x"`
	oracle, in := newOracle(policies, testWorld), podInput(t, admission.Create)
	if got, want := oracle.decide(t, in).Message, subject+`expression 'object.spec == "x"' resulted in error: no such overload`; got != want {
		t.Errorf("native message for a built-in kind = %q, want %q", got, want)
	}
	if got := decideOurs(t, groupOf(t, policies), in, testWorld).Message; got != unequal {
		t.Errorf("our message = %q, want %q", got, unequal)
	}
	in.object = custom(t, podYAML)
	if got := compare(t, oracle, groupOf(t, policies), in).Message; got != unequal {
		t.Errorf("native message for a custom resource = %q, want %q", got, unequal)
	}
}

// TestLongMessagesDiffer: the native engine sends an expression of any length
// in its message; ours is cut.
func TestLongMessagesDiffer(t *testing.T) {
	p := policyFrom(t, "p", `{validations: [{expression: 'object.metadata.name == "`+strings.Repeat("é",
		4000)+`"'}], bindings: [{name: b, validationActions: [Deny, Audit]}, {name: w, validationActions: [Warn]}]}`)
	policies := []*v1alpha1.WebhookPolicy{p}
	in := podInput(t, admission.Create)
	native, ours := newOracle(policies, testWorld).decide(t, in), decideOurs(t, groupOf(t, policies), in, testWorld)
	const subject = "WebhookPolicy 'p' with binding 'b' denied request: "
	if got, want := ours.Message, subject+truncate.String(strings.TrimPrefix(native.Message, subject),
		response.MaxOneMessage); got != want || len(native.Message) <= response.MaxOneMessage+len(subject) {
		t.Errorf("message = %q, want %q", got, want)
	}
	if len(ours.Warnings[0]) >= len(native.Warnings[0]) ||
		len(ours.Annotations[response.FailureKey]) >= len(native.Annotations[response.FailureKey]) {
		t.Errorf("warning of %d bytes and annotation of %d, native %d and %d: not cut", len(ours.Warnings[0]),
			len(ours.Annotations[response.FailureKey]), len(native.Warnings[0]), len(native.Annotations[response.FailureKey]))
	}
}
