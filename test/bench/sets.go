// Package bench holds what Ostiary is measured with: sets of policies and the
// requests that they decide, and benchmarks of everything between a request's
// bytes and the answer's.
//
// The sets are kept as native ValidatingAdmissionPolicies with their bindings;
// a policy moves over by changing its kind.
package bench

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// Sets of policies. All policies but most of D, and two of R2, match the creation of a pod.
const (
	// A is one policy.
	A = "A"
	// B is twenty: pod security, registries, resources, probes, tags and more.
	B = "B"
	// C is two hundred: those of B ten times.
	C = "C"
	// D is a thousand, of which five match pods.
	D = "D"
	// R is sixty-four in the style of published libraries, with variables, message
	// expressions and match conditions. Ten refuse the pod Bad.
	R = "R"
	// R2 is 134 in the styles of four publishers. Of all, 16 refuse the pod Bad, and 4 end with an
	// error. It calls every function of the environment of CEL: see testdata/r2/coverage.txt.
	R2 = "R2"
	// V is a hundred with the same three variables. Ten refuse the pod Bad.
	V = "V"
	// Probes are a thousand that match pods. Policy probe-<i> refuses the pods
	// whose label ProbeLabel is p<i>, and no others.
	Probes = "P1000"
)

// ProbeLabel is what the policies of the set Probes look at.
const ProbeLabel = "probe"

// Pods. Every policy allows the pod Good; each set of A to V has some that
// refuse the pod Bad.
const (
	Good = "ok"
	Bad  = "bad"
)

// Placeholders in a review: what they stand for differs from request to request.
const (
	UIDPlaceholder  = "__UID__"
	NamePlaceholder = "__NAME__"
)

// NamespaceLabels are those of the namespaces that the policies match.
func NamespaceLabels() map[string]string { return map[string]string{"bench": "1"} }

// ReviewNamespace is the namespace of the pods in reviews.
const ReviewNamespace = "bench-noop"

//go:embed testdata/*.json testdata/r2/*.yaml
var testdata embed.FS

// Policies returns the policies of a set, in the order in which they are applied.
func Policies(set string) ([]*v1alpha1.WebhookPolicy, error) {
	if set == R2 {
		return policiesOfStyles()
	}
	var list struct {
		Items []struct {
			Kind     string
			Metadata metav1.ObjectMeta
			Spec     json.RawMessage
		}
	}
	if err := read("native-"+set, &list); err != nil {
		return nil, err
	}
	var out []*v1alpha1.WebhookPolicy
	byName := map[string]*v1alpha1.WebhookPolicy{}
	for _, item := range list.Items {
		var err error
		switch item.Kind {
		case "ValidatingAdmissionPolicy":
			var p *v1alpha1.WebhookPolicy
			p, err = decode(item.Metadata, item.Spec)
			out, byName[item.Metadata.Name] = append(out, p), p
		case "ValidatingAdmissionPolicyBinding":
			err = bind(byName, item.Metadata.Name, item.Spec)
		default:
			err = fmt.Errorf("unexpected kind %q", item.Kind)
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s of set %s: %w", item.Metadata.Name, set, err)
		}
	}
	return out, nil
}

func decode(meta metav1.ObjectMeta, raw []byte) (*v1alpha1.WebhookPolicy, error) {
	var spec admissionregistrationv1.ValidatingAdmissionPolicySpec
	if err := json.Unmarshal(raw, &spec); err != nil {
		return nil, err
	}
	return convert(meta, &spec), nil
}

func convert(
	meta metav1.ObjectMeta,
	spec *admissionregistrationv1.ValidatingAdmissionPolicySpec,
) *v1alpha1.WebhookPolicy {
	return &v1alpha1.WebhookPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "WebhookPolicy"},
		ObjectMeta: meta,
		Spec: v1alpha1.WebhookPolicySpec{
			ParamKind:        spec.ParamKind,
			MatchConstraints: spec.MatchConstraints,
			MatchConditions:  spec.MatchConditions,
			Variables:        spec.Variables,
			Validations:      v1alpha1.ValidationsOf(spec.Validations),
			FailurePolicy:    spec.FailurePolicy,
		},
	}
}

// bind adds a binding to its policy. A policy has one, which may narrow the
// policy down to namespaces.
func bind(byName map[string]*v1alpha1.WebhookPolicy, name string, raw []byte) error {
	var spec admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec
	if err := json.Unmarshal(raw, &spec); err != nil {
		return err
	}
	p := byName[spec.PolicyName]
	switch match := spec.MatchResources; {
	case p == nil:
		return fmt.Errorf("no policy %q stands before it", spec.PolicyName)
	case len(p.Spec.Bindings) > 0:
		return fmt.Errorf("policy %q has a second binding", spec.PolicyName)
	case match != nil && p.Spec.MatchConstraints.NamespaceSelector != nil:
		return fmt.Errorf("policy %q and its binding both select namespaces", spec.PolicyName)
	case match != nil:
		p.Spec.MatchConstraints.NamespaceSelector = match.NamespaceSelector
	}
	p.Spec.Bindings = []v1alpha1.Binding{{Name: name, ValidationActions: spec.ValidationActions}}
	return nil
}

// Review returns the AdmissionReview of the creation of a pod as an API server
// sends it, with the placeholders in it.
func Review(pod string) ([]byte, error) { return fs.ReadFile(testdata, "testdata/review-"+pod+".json") }

// Request returns the request in Review.
func Request(pod string) (*admissionv1.AdmissionRequest, error) {
	var review admissionv1.AdmissionReview
	if err := read("review-"+pod, &review); err != nil {
		return nil, err
	}
	return review.Request, nil
}

// Pod returns a pod as a client sends it, with more labels.
func Pod(pod string, labels map[string]string) (map[string]any, error) {
	var object map[string]any
	if err := read("pod-"+pod, &object); err != nil {
		return nil, err
	}
	metadata := object["metadata"].(map[string]any)
	all, _ := metadata["labels"].(map[string]any)
	if all == nil {
		all = map[string]any{}
	}
	for key, value := range labels {
		all[key] = value
	}
	metadata["labels"] = all
	return object, nil
}

func read(name string, into any) error {
	raw, err := fs.ReadFile(testdata, "testdata/"+name+".json")
	if err == nil {
		err = json.Unmarshal(raw, into)
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", name, err)
	}
	return nil
}

// Called reports whether an API server sends the creation of a pod to a webhook with these rules
// and match conditions. Conditions about a user decide about one without a name.
func Called(
	ctx context.Context,
	webhookRules []admissionregistrationv1.RuleWithOperations,
	conditions []admissionregistrationv1.MatchCondition,
) (bool, error) {
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	kind := schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	request := admission.NewAttributesRecord(
		&unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "pod"}}},
		nil, kind, "bench", "pod", pods, "", admission.Create, nil, false, &user.DefaultInfo{},
	)
	if !slices.ContainsFunc(webhookRules, func(rule admissionregistrationv1.RuleWithOperations) bool {
		return (&rules.Matcher{Rule: rule, Attr: request}).Matches()
	}) {
		return false, nil
	}
	hook := &admissionregistrationv1.ValidatingWebhook{
		Name: "called", FailurePolicy: new(admissionregistrationv1.Fail), MatchConditions: conditions,
	}
	compiler := cel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	matcher := webhook.NewValidatingWebhookAccessor("", "", hook).GetCompiledMatcher(compiler)
	versioned := &admission.VersionedAttributes{
		Attributes: request, VersionedKind: kind, VersionedObject: admission.NewLazyObject(request.GetObject()),
	}
	result := matcher.Match(ctx, versioned, nil, nil)
	if result.Error != nil {
		return false, fmt.Errorf("evaluating match conditions: %w", result.Error)
	}
	return result.Matches, nil
}
