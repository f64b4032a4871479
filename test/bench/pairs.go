package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// Side says who decides in a namespace; it is the value of the label "bench".
type Side string

// Sides of a comparison.
const (
	None    Side = "none"
	Native  Side = "native"
	Ostiary Side = "ostiary"
	// Webhooks is webhooks that allow everything: the least that a call costs. With one
	// for each policy it is the least of a system that registers policies one by one.
	Webhooks Side = "webhooks"
)

// Labels are those of the side's namespace.
func (s Side) Labels() map[string]string { return map[string]string{"bench": string(s)} }

// Pair is the same policies twice: for the engine in the API server, enforced in
// the namespace of one side, and for Ostiary, enforced in that of the other.
type Pair struct {
	Name     string
	Policies int
	Params   []*corev1.ConfigMap // that the policies read
	Native   []client.Object     // policies and bindings, in the order in which they are applied
	Ostiary  []*v1alpha1.WebhookPolicy

	// Refused are the labels that every pod with them is refused for; nil when
	// the pod Bad is.
	Refused map[string]string
	// Pod is what is created under load: Good, or Bad where no policy denies.
	Pod string
	// Marks stand in every answer about a pod when all policies are enforced.
	Marks []string
	// Webhooks is how many webhooks that allow everything the pair is compared with.
	Webhooks int
}

// Sides are those that the pair is measured on.
func (p *Pair) Sides() []Side {
	out := []Side{None, Native, Ostiary}
	if p.Webhooks > 0 {
		out = append(out, Webhooks)
	}
	return out
}

// Configurations are those of the side Webhooks, each with one webhook at the url, for
// the same pods.
func (p *Pair) Configurations(url string, bundle []byte) []client.Object {
	var out []client.Object
	for _, ours := range p.Ostiary[:p.Webhooks] {
		var rules []admissionregistrationv1.RuleWithOperations
		for _, rule := range ours.Spec.MatchConstraints.ResourceRules {
			rules = append(rules, rule.RuleWithOperations)
		}
		out = append(out, &admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: ours.Name},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{
				Name: ours.Name + ".bench.example.com", ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: bundle},
				Rules: rules, NamespaceSelector: inNamespaceOf(Webhooks).NamespaceSelector,
				SideEffects: new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
			}},
		})
	}
	return out
}

// PairOf returns one of the sets but Probes.
func PairOf(set string) (*Pair, error) {
	policies, errPolicies := Policies(set)
	params, errParams := Params(set)
	if err := errors.Join(errPolicies, errParams); err != nil {
		return nil, err
	}
	p := &Pair{Name: set, Policies: len(policies), Params: params, Pod: Good, Ostiary: policies, Webhooks: 1}
	for _, ours := range policies {
		p.Native = append(p.Native, validating(ours)...)
	}
	p.narrow()
	return p, nil
}

// AuditPairOf returns one of the sets, with violations that are audited and not
// denied, for the pod Bad. A last policy that denies shows that all are enforced. It
// ignores failures, as policies that never deny do, and so is in the same call.
func AuditPairOf(set string) (*Pair, error) {
	policies, errPolicies := Policies(set)
	params, errParams := Params(set)
	if err := errors.Join(errPolicies, errParams); err != nil {
		return nil, err
	}
	p := &Pair{
		Name: set + ", Audit", Policies: len(policies), Params: params, Pod: Bad, Webhooks: 1,
		Refused: map[string]string{ProbeLabel: "last"},
	}
	for _, ours := range policies {
		for i := range ours.Spec.Bindings {
			ours.Spec.Bindings[i].ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Audit}
		}
	}
	last := refusing("last")
	last.Spec.FailurePolicy = new(admissionregistrationv1.Ignore)
	p.Ostiary = slices.Concat(policies, []*v1alpha1.WebhookPolicy{last})
	for _, ours := range p.Ostiary {
		p.Native = append(p.Native, validating(ours)...)
	}
	p.narrow()
	return p, nil
}

// refusing is a policy that refuses the pods with a value of ProbeLabel, and has
// the name of that value.
func refusing(value string) *v1alpha1.WebhookPolicy {
	return onPods(value, v1alpha1.WebhookPolicySpec{Validations: []v1alpha1.Validation{{
		Expression: fmt.Sprintf("object.metadata.?labels.probe.orValue('') != '%s'", value), Message: value + " is refused",
	}}})
}

// sentinel is the label and its value that the policy in SentinelPair refuses.
const sentinel = "sentinel"

// SentinelPair is one policy. The engine in the API server puts policies into
// force in bulk: when it refuses pods for one, all that were applied before are.
func SentinelPair() *Pair {
	p := &Pair{Name: sentinel, Policies: 1, Pod: Good, Refused: map[string]string{ProbeLabel: sentinel}}
	p.Ostiary = []*v1alpha1.WebhookPolicy{refusing(sentinel)}
	p.Native = validating(p.Ostiary[0])
	p.narrow()
	return p
}

// MatchingPair is policies that all look at every pod, and refuse each a label of
// its own.
func MatchingPair(count int) *Pair {
	p := &Pair{Name: fmt.Sprintf("%d matching", count), Policies: count, Pod: Good, Webhooks: count}
	for i := range count {
		label := fmt.Sprintf("forbidden-%d", i)
		ours := refusing(label)
		p.Ostiary = append(p.Ostiary, ours)
		p.Native = append(p.Native, validating(ours)...)
		p.Refused = map[string]string{ProbeLabel: label}
	}
	p.narrow()
	return p
}

// ParamsPair is one policy that is evaluated with each of so many ConfigMaps in
// a namespace, all of which a pod has to satisfy.
func ParamsPair(count int, namespace string) *Pair {
	p := &Pair{Name: fmt.Sprintf("%d params", count), Policies: 1, Pod: Good, Params: params(count, namespace)}
	ours := readingParams("params")
	ours.Spec.Bindings[0].ParamRef = &admissionregistrationv1.ParamRef{
		Selector: &metav1.LabelSelector{MatchLabels: p.Params[0].Labels}, Namespace: namespace,
		ParameterNotFoundAction: new(admissionregistrationv1.DenyAction),
	}
	p.Ostiary = []*v1alpha1.WebhookPolicy{ours}
	p.Native = validating(ours)
	p.Refused = map[string]string{ProbeLabel: p.Params[count-1].Data["label"]}
	p.narrow()
	return p
}

// bindingsOfOne is how many bindings a policy of BindingsPair has.
const bindingsOfOne = 64

// BindingsPair is as many bindings, each with a ConfigMap of its own. A
// WebhookPolicy holds its bindings, of which there can be 100, so that many of
// them are those of several policies.
func BindingsPair(count int, namespace string) *Pair {
	p := &Pair{
		Name:     fmt.Sprintf("%d bindings", count),
		Policies: (count + bindingsOfOne - 1) / bindingsOfOne,
		Pod:      Good,
		Params:   params(count, namespace),
	}
	for some := range slices.Chunk(p.Params, bindingsOfOne) {
		ours := readingParams(fmt.Sprintf("bindings-%d", len(p.Ostiary)))
		deny := ours.Spec.Bindings[0].ValidationActions
		ours.Spec.Bindings = nil
		for _, param := range some {
			ours.Spec.Bindings = append(ours.Spec.Bindings,
				v1alpha1.Binding{Name: param.Name, ValidationActions: deny, ParamRef: &admissionregistrationv1.ParamRef{
					Name: param.Name, Namespace: namespace, ParameterNotFoundAction: new(admissionregistrationv1.DenyAction),
				}})
		}
		p.Ostiary = append(p.Ostiary, ours)
		p.Native = append(p.Native, validating(ours)...)
	}
	p.Refused = map[string]string{ProbeLabel: p.Params[count-1].Data["label"]}
	p.narrow()
	return p
}

func params(count int, namespace string) []*corev1.ConfigMap {
	out := make([]*corev1.ConfigMap, count)
	for i := range out {
		out[i] = &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("param-%d", i), Namespace: namespace, Labels: map[string]string{"bench": "params"}},
			Data:       map[string]string{"label": fmt.Sprintf("forbidden-%d", i)},
		}
	}
	return out
}

// readingParams refuses pods with the label that a param names.
func readingParams(name string) *v1alpha1.WebhookPolicy {
	return onPods(name, v1alpha1.WebhookPolicySpec{
		ParamKind: &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"},
		Validations: []v1alpha1.Validation{{
			Expression:        "object.metadata.?labels.probe.orValue('') != params.data.label",
			MessageExpression: "'the label probe must not be ' + params.data.label",
		}},
	})
}

// ParamsHolder is a native policy for no pod, to be kept while pairs with params
// come and go. The API server stops watching a built-in kind of params with its
// last policy, and never starts again: the policies after it would be evaluated
// with what params there were then.
func ParamsHolder() []client.Object {
	ours := ParamsPair(1, "none").Ostiary[0]
	ours.Name = "params-holder"
	native := validating(ours)
	binding := native[1].(*admissionregistrationv1.ValidatingAdmissionPolicyBinding)
	binding.Spec.MatchResources = inNamespaceOf("no-caller")
	return native
}

// MutationsPair is policies that each add a label to a pod.
func MutationsPair(count int, patch admissionregistrationv1.PatchType) *Pair {
	p := &Pair{Name: fmt.Sprintf("%d × %s", count, patch), Policies: count, Pod: Good}
	for i := range count {
		label := fmt.Sprintf("added-%d", i)
		ours := onPods(label, v1alpha1.WebhookPolicySpec{Mutations: []admissionregistrationv1.Mutation{addLabel(label, patch)}})
		p.Ostiary = append(p.Ostiary, ours)
		p.Native = append(p.Native, mutating(ours)...)
		p.Marks = append(p.Marks, fmt.Sprintf("%q:%q", label, "yes"))
	}
	p.narrow()
	return p
}

func addLabel(label string, patch admissionregistrationv1.PatchType) admissionregistrationv1.Mutation {
	if patch == admissionregistrationv1.PatchTypeJSONPatch {
		return admissionregistrationv1.Mutation{PatchType: patch, JSONPatch: &admissionregistrationv1.JSONPatch{
			Expression: fmt.Sprintf(`[JSONPatch{op: "add", path: "/metadata/labels/" + jsonpatch.escapeKey(%q), value: "yes"}]`, label),
		}}
	}
	return admissionregistrationv1.Mutation{PatchType: patch, ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{
		Expression: fmt.Sprintf(`Object{metadata: Object.metadata{labels: {%q: "yes"}}}`, label),
	}}
}

// onPods is a policy for the creation of pods, with one binding.
func onPods(name string, spec v1alpha1.WebhookPolicySpec) *v1alpha1.WebhookPolicy {
	spec.MatchConstraints = &admissionregistrationv1.MatchResources{
		ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
			RuleWithOperations: admissionregistrationv1.RuleWithOperations{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			},
		}},
	}
	spec.Bindings = []v1alpha1.Binding{{Name: "all"}}
	if len(spec.Validations) > 0 {
		spec.Bindings[0].ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
	}
	return &v1alpha1.WebhookPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "WebhookPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec,
	}
}

// validating is the native form of a policy that validates: the policy, and its
// bindings.
func validating(p *v1alpha1.WebhookPolicy) []client.Object {
	match := p.Spec.MatchConstraints.DeepCopy()
	match.NamespaceSelector = nil // the bindings'
	out := []client.Object{
		&admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: p.Name},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
				ParamKind: p.Spec.ParamKind, MatchConstraints: match, MatchConditions: p.Spec.MatchConditions,
				Variables: p.Spec.Variables, Validations: p.Spec.NativeValidations(), FailurePolicy: p.Spec.FailurePolicy,
			}},
	}
	for i, b := range p.Spec.Bindings {
		name := p.Name
		if i > 0 {
			name += "-" + b.Name
		}
		out = append(out, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: p.Name, ParamRef: b.ParamRef, ValidationActions: b.ValidationActions, MatchResources: inNamespaceOf(Native),
			},
		})
	}
	return out
}

// mutating is the native form of a policy that mutates.
func mutating(p *v1alpha1.WebhookPolicy) []client.Object {
	meta := metav1.ObjectMeta{Name: p.Name}
	return []client.Object{
		&admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: meta, Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			MatchConstraints: p.Spec.MatchConstraints.DeepCopy(), Mutations: p.Spec.Mutations,
			ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
		}},
		&admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: meta,
			Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{
				PolicyName: p.Name, MatchResources: inNamespaceOf(Native),
			}},
	}
}

func inNamespaceOf(side Side) *admissionregistrationv1.MatchResources {
	return &admissionregistrationv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: side.Labels()}}
}

// narrow has Ostiary's policies be for the namespace of their side.
func (p *Pair) narrow() {
	for _, ours := range p.Ostiary {
		ours.Spec.MatchConstraints.NamespaceSelector = inNamespaceOf(Ostiary).NamespaceSelector
	}
}

// PodBody is a pod as a client sends it, with NamePlaceholder for its name.
func PodBody(pod string, labels map[string]string) ([]byte, error) {
	object, err := Pod(pod, labels)
	if err != nil {
		return nil, err
	}
	object["metadata"].(map[string]any)["name"] = NamePlaceholder
	return json.Marshal(object)
}

// WithVariables has policies of the set Probes read the label through three
// variables of their own, which takes more memory than the expression alone.
func WithVariables(policies []*v1alpha1.WebhookPolicy) []*v1alpha1.WebhookPolicy {
	policies = slices.Clone(policies)
	for i, p := range policies {
		p = p.DeepCopy()
		p.Spec.Variables = []admissionregistrationv1.Variable{
			{Name: "labels", Expression: fmt.Sprintf("object.metadata.?labels.orValue({'none': '%d'})", i)},
			{Name: "probe", Expression: fmt.Sprintf("variables.labels[?'probe'].orValue('none-%d')", i)},
			{Name: "forbidden", Expression: fmt.Sprintf("'p%d'", i)},
		}
		p.Spec.Validations = []v1alpha1.Validation{
			{Expression: "variables.probe != variables.forbidden", Message: fmt.Sprintf("label probe must not be p%d", i)},
		}
		policies[i] = p
	}
	return policies
}
