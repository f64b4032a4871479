package bench

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// ParamsNamespace has the params of policies.
const ParamsNamespace = "bench-params"

// Styles are the files of the set R2, each in the style of one publisher.
func Styles() []string { return []string{"constraints", "controls", "profiles", "platform"} }

// style is a file of policies.
type style struct {
	// Common has what several policies contain, for the anchors of YAML.
	Common json.RawMessage `json:"common"`
	// Params are the data of the ConfigMap that a policy reads, by the name of the policy.
	Params map[string]map[string]string `json:"params"`
	// Policies are native policies by their names.
	Policies map[string]admissionregistrationv1.ValidatingAdmissionPolicySpec `json:"policies"`
}

// StyleText returns the file of a style.
func StyleText(name string) ([]byte, error) {
	return fs.ReadFile(testdata, "testdata/r2/"+name+".yaml")
}

func readStyle(name string) (style, error) {
	var out style
	raw, err := StyleText(name)
	if err == nil {
		err = yaml.UnmarshalStrict(raw, &out)
	}
	if err != nil {
		return out, fmt.Errorf("reading the style %s: %w", name, err)
	}
	return out, nil
}

// policiesOfStyles returns the policies of the set R2. Each has one binding, of its own name.
func policiesOfStyles() ([]*v1alpha1.WebhookPolicy, error) {
	var out []*v1alpha1.WebhookPolicy
	for _, name := range Styles() {
		s, err := readStyle(name)
		if err != nil {
			return nil, err
		}
		for _, policy := range slices.Sorted(maps.Keys(s.Policies)) {
			spec := s.Policies[policy]
			spec.FailurePolicy = new(admissionregistrationv1.Fail)
			p := convert(metav1.ObjectMeta{Name: policy}, &spec)
			p.Spec.MatchConstraints.NamespaceSelector = &metav1.LabelSelector{MatchLabels: NamespaceLabels()}
			p.Spec.Bindings = []v1alpha1.Binding{bindingOf(policy, spec.ParamKind != nil)}
			out = append(out, p)
		}
	}
	return out, nil
}

func bindingOf(policy string, hasParams bool) v1alpha1.Binding {
	out := v1alpha1.Binding{
		Name:              policy,
		ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
	}
	if hasParams {
		out.ParamRef = &admissionregistrationv1.ParamRef{
			Name:                    policy,
			Namespace:               ParamsNamespace,
			ParameterNotFoundAction: new(admissionregistrationv1.DenyAction),
		}
	}
	return out
}

// Params returns what the policies of a set read.
func Params(set string) ([]*corev1.ConfigMap, error) {
	if set != R2 {
		return nil, nil
	}
	var out []*corev1.ConfigMap
	for _, name := range Styles() {
		s, err := readStyle(name)
		if err != nil {
			return nil, err
		}
		for _, policy := range slices.Sorted(maps.Keys(s.Params)) {
			meta := metav1.ObjectMeta{Namespace: ParamsNamespace, Name: policy}
			out = append(out, &corev1.ConfigMap{ObjectMeta: meta, Data: s.Params[policy]})
		}
	}
	return out, nil
}
