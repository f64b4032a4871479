package gatekeeper

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ostiary/ostiary/internal/migrate/conversion"
)

// original keeps the constraint as a native policy with the constraint as its param, which
// is how Gatekeeper evaluates the source, and with Gatekeeper's matching.
func (b *builder) original() error {
	param := &unstructured.Unstructured{}
	if err := param.UnmarshalJSON(b.Source.Raw); err != nil {
		return b.Source.Errorf("", "%v", err)
	}
	if p := b.constraint.Spec.Parameters; p != nil {
		value, err := b.definition.withDefaults(runtime.DeepCopyJSONValue(p))
		if err != nil {
			return b.definition.object.Errorf("spec.crd.spec.validation.openAPIV3Schema", "%v", err)
		}
		if err := unstructured.SetNestedField(param.Object, value, "spec", "parameters"); err != nil {
			return b.Source.Errorf("spec.parameters", "%v", err)
		}
	}
	from := b.definition.source
	spec := admissionregistrationv1.ValidatingAdmissionPolicySpec{
		ParamKind: &admissionregistrationv1.ParamKind{
			APIVersion: constraintsGroup + "/" + constraintsVersion,
			Kind:       b.constraint.Kind,
		},
		MatchConstraints: &admissionregistrationv1.MatchResources{
			ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{
				b.rule([]string{wildcard}, []string{wildcard}),
			},
		},
		MatchConditions: from.MatchConditions, FailurePolicy: from.FailurePolicy,
		Variables: []admissionregistrationv1.Variable{{Name: "anyObject", Expression: anyObject},
			{
				Name:       "params",
				Expression: "!has(params.spec) ? null : !has(params.spec.parameters) ? null : params.spec.parameters",
			}},
	}
	spec.Variables = append(spec.Variables, from.Variables...)
	for _, v := range from.Validations {
		spec.Validations = append(spec.Validations, admissionregistrationv1.Validation{
			Expression:        v.Expression,
			Message:           v.Message,
			MessageExpression: v.MessageExpression,
		})
	}
	o := conversion.NewOriginal(b.constraint.Name, spec, b.policy.Spec.Bindings[0].ValidationActions)
	o.ValidatingBindings[0].Spec.ParamRef = &admissionregistrationv1.ParamRef{
		Name:                    b.constraint.Name,
		ParameterNotFoundAction: new(admissionregistrationv1.DenyAction),
	}
	o.Param, o.Matches = param, b.from.matches
	b.Original = o
	return nil
}

// matches reports whether Gatekeeper evaluates the constraint for a request. It is written
// from the description of the fields, without what the conversion makes of them.
func (m *requestMatch) matches(r conversion.OriginalRequest) bool {
	isKind := func(k selectedKinds) bool { return isOneOf(k.APIGroups, r.Kind.Group) && isOneOf(k.Kinds, r.Kind.Kind) }
	inScope := map[string]bool{
		string(admissionregistrationv1.ClusterScope):    r.InNamespace == nil,
		string(admissionregistrationv1.NamespacedScope): r.InNamespace != nil,
	}
	matches, limited := inScope[m.Scope]
	return (len(m.Kinds) == 0 || slices.ContainsFunc(m.Kinds, isKind)) && (matches || !limited) &&
		m.matchesNamespace(r) && selectsLabels(m.LabelSelector, r.Object.Labels) && m.matchesName(r.Object)
}

// matchesNamespace is true for cluster-scoped objects. A Namespace is in itself.
func (m *requestMatch) matchesNamespace(r conversion.OriginalRequest) bool {
	namespace, of := r.Namespace, map[string]string(nil)
	switch {
	case r.Kind.Group == "" && r.Kind.Kind == "Namespace":
		namespace, of = r.Object.Name, r.Object.Labels
	case r.InNamespace == nil:
		return true
	default:
		of = r.InNamespace.Labels
	}
	in := func(patterns []string) bool {
		return slices.ContainsFunc(patterns, func(p string) bool { return matchesWildcard(p, namespace) })
	}
	return (len(m.Namespaces) == 0 || in(m.Namespaces)) && !in(m.ExcludedNamespaces) &&
		selectsLabels(m.NamespaceSelector, of)
}

// matchesName compares generateName too if the pattern is a prefix.
func (m *requestMatch) matchesName(o *metav1.PartialObjectMetadata) bool {
	return m.Name == "" || matchesWildcard(m.Name, o.Name) || strings.HasSuffix(m.Name, wildcard) &&
		matchesWildcard(m.Name, o.GenerateName)
}

func isOneOf(names []string, name string) bool {
	return len(names) == 0 || slices.Contains(names, wildcard) || slices.Contains(names, name)
}

func selectsLabels(s *metav1.LabelSelector, of map[string]string) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	return s == nil || err == nil && selector.Matches(labels.Set(of))
}

// matchesWildcard reports whether a pattern, which may begin or end with a wildcard, matches
// a name.
func matchesWildcard(pattern, name string) bool {
	text := strings.Trim(pattern, wildcard)
	begins, ends := strings.HasPrefix(pattern, wildcard), strings.HasSuffix(pattern, wildcard)
	switch {
	case begins && ends:
		return strings.Contains(name, text)
	case begins:
		return strings.HasSuffix(name, text)
	case ends:
		return strings.HasPrefix(name, text)
	}
	return pattern == name
}
