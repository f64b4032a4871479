// Package plugintest calls the plugin of a policy as the API server would, in both phases,
// without an API server.
package plugintest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/egress"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/validation"
)

// Name is that of the policy.
const Name = "p"

// Request is what is asked. Objects are YAML.
type Request struct {
	Operation         admissionv1.Operation
	Object, OldObject string
	Resource          metav1.GroupVersionResource // pods by default
	Subresource       string
	Namespace         string // shop by default
	User              authenticationv1.UserInfo
	DryRun            bool
	// ChangedBack has another webhook undo what the policy changes.
	ChangedBack bool
	// MutatingOnly leaves the validating phase out.
	MutatingOnly bool
}

// Answer is what came back of both phases.
type Answer struct {
	Code        int32 // 0 if allowed
	Reason      metav1.StatusReason
	Message     string // without the policy's name
	Warnings    []string
	Annotations map[string]string
	Object      *unstructured.Unstructured // as it is stored, if allowed
}

// Compile makes what answers for a policy with the given spec, in YAML.
func Compile(tb testing.TB, spec string) (*policy.Group, *v1alpha1.WebhookPolicy) {
	tb.Helper()
	verdict := Judge(tb, spec)
	return GroupOf(verdict.Compiled), verdict.Policy
}

// Policy is the policy with the given spec, in YAML.
func Policy(tb testing.TB, spec string) *v1alpha1.WebhookPolicy {
	tb.Helper()
	p := &v1alpha1.WebhookPolicy{ObjectMeta: metav1.ObjectMeta{Name: Name, UID: Name, Generation: 1}}
	if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
		tb.Fatal(err)
	}
	return p
}

// Judge compiles a policy with the given spec, which has to be right.
func Judge(tb testing.TB, spec string) validation.Result {
	tb.Helper()
	verdict := validation.Validate(policy.NewCompiler(), Policy(tb, spec), egress.Rule{})
	if len(verdict.Errors) > 0 {
		tb.Fatalf("the policy is refused: %v", verdict.Errors.ToAggregate())
	}
	return verdict
}

// GroupOf answers for one policy.
func GroupOf(compiled *policy.Compiled) *policy.Group {
	return policy.NewGroup([]*policy.Compiled{compiled})
}

// Ask puts a request to a policy.
func Ask(tb testing.TB, spec string, r Request, host policy.Environment) Answer {
	tb.Helper()
	group, p := Compile(tb, spec)
	return Put(tb, group, p, r, host)
}

// Put puts a request to what Compile has made.
func Put(tb testing.TB, group *policy.Group, p *v1alpha1.WebhookPolicy, r Request, host policy.Environment) Answer {
	tb.Helper()
	if host.Now == nil {
		host.Now = time.Now
	}
	raw := r.Review(tb)
	var out Answer
	if p.Spec.Mutates() {
		response, err := group.Mutate(tb.Context(), raw, host)
		if err != nil {
			tb.Fatalf("mutating: %v", err)
		}
		if out.add(response); !response.Allowed {
			return out
		}
		if !r.ChangedBack {
			raw.Object.Raw = patched(tb, raw.Object.Raw, response.Patch)
		}
	}
	if p.Spec.Validates() && !r.MutatingOnly {
		response, err := group.Validate(tb.Context(), raw, host)
		if err != nil {
			tb.Fatalf("validating: %v", err)
		}
		if out.add(response); !response.Allowed {
			return out
		}
	}
	if len(raw.Object.Raw) > 0 {
		out.Object = &unstructured.Unstructured{}
		if err := out.Object.UnmarshalJSON(raw.Object.Raw); err != nil {
			tb.Fatal(err)
		}
	}
	return out
}

func (a *Answer) add(response *admissionv1.AdmissionResponse) {
	a.Warnings = append(a.Warnings, response.Warnings...)
	for key, value := range response.AuditAnnotations {
		if a.Annotations == nil {
			a.Annotations = map[string]string{}
		}
		a.Annotations[key] = value
	}
	if !response.Allowed {
		a.Code, a.Reason = response.Result.Code, response.Result.Reason
		a.Message = strings.TrimPrefix(response.Result.Message, "WebhookPolicy '"+Name+"' denied request: ")
	}
}

func patched(tb testing.TB, object, patch []byte) []byte {
	tb.Helper()
	if len(patch) == 0 {
		return object
	}
	operations, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		tb.Fatalf("decoding the patch: %v", err)
	}
	out, err := operations.Apply(object)
	if err != nil {
		tb.Fatalf("applying %s: %v", patch, err)
	}
	return out
}

// Review is the request as an API server sends it.
func (r Request) Review(tb testing.TB) *admissionv1.AdmissionRequest {
	tb.Helper()
	object, old := toJSON(tb, r.Object), toJSON(tb, r.OldObject)
	var head metav1.PartialObjectMetadata
	if err := json.Unmarshal(firstOf(object, old), &head); err != nil {
		tb.Fatal(err)
	}
	resource := r.Resource
	if resource.Resource == "" {
		resource = metav1.GroupVersionResource{Version: "v1", Resource: "pods"}
	}
	return &admissionv1.AdmissionRequest{
		UID: "uid", Kind: metav1.GroupVersionKind(head.GroupVersionKind()), Resource: resource, SubResource: r.Subresource,
		Name: head.Name, Namespace: cmp.Or(r.Namespace, "shop"), Operation: cmp.Or(r.Operation, admissionv1.Create),
		Object: runtime.RawExtension{Raw: object}, OldObject: runtime.RawExtension{Raw: old},
		UserInfo: r.User, DryRun: &r.DryRun,
	}
}

func firstOf(a, b []byte) []byte {
	if len(a) > 0 {
		return a
	}
	return b
}

func toJSON(tb testing.TB, text string) []byte {
	tb.Helper()
	if text == "" {
		return nil
	}
	out, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		tb.Fatalf("%v in %s", err, text)
	}
	return out
}

// Pod is a Pod with a spec in YAML's flow style.
func Pod(spec string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop}, spec: %s}", spec)
}

// Field is what stands at a path of the answer's object, as JSON; empty if
// nothing does.
func (a Answer) Field(path ...string) string {
	if a.Object == nil {
		return ""
	}
	value, found, err := unstructured.NestedFieldNoCopy(a.Object.Object, path...)
	if err != nil || !found {
		return ""
	}
	text, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Namespaces are all namespaces, each with the same annotations and labels.
type Namespaces struct{ Annotations, Labels map[string]string }

// GetNamespace implements pluginapi.Namespaces.
func (n Namespaces) GetNamespace(_ context.Context, name string) (*corev1.Namespace, error) {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: n.Annotations, Labels: n.Labels}}, nil
}

// Objects are what plugins list, in YAML, by kind.
type Objects map[string][]string

// Params implements policy.Params.
func (o Objects) Params(_ context.Context, kind *admissionregistrationv1.ParamKind, _ *admissionregistrationv1.ParamRef, _ string) ([]runtime.Object, error) {
	list, ok := o[kind.Kind]
	if !ok {
		return nil, fmt.Errorf("objects of kind %s in %s are still being listed", kind.Kind, kind.APIVersion)
	}
	var out []runtime.Object
	for _, text := range list {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
			return nil, err
		}
		out = append(out, u)
	}
	return out, nil
}

// Known are objects, in YAML, that are found whatever is asked for.
func Known(tb testing.TB, objects ...string) policy.Params {
	tb.Helper()
	var out known
	for _, text := range objects {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
			tb.Fatal(err)
		}
		out = append(out, u)
	}
	return out
}

type known []runtime.Object

// Params implements policy.Params.
func (k known) Params(context.Context, *admissionregistrationv1.ParamKind, *admissionregistrationv1.ParamRef, string) ([]runtime.Object, error) {
	return k, nil
}
