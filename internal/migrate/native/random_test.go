package native

import (
	"fmt"
	"math/rand/v2"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// author writes policies at random that API servers accept.
type author struct {
	*rand.Rand
	params bool
}

func newAuthor(seed uint64, number int) *author {
	return &author{Rand: rand.New(rand.NewPCG(seed, uint64(number)))}
}

func pick[T any](a *author, from ...T) T { return from[a.IntN(len(from))] }

// some returns up to n values.
func some[T any](a *author, n int, make func(i int) T) (out []T) {
	for i := range a.IntN(n + 1) {
		out = append(out, make(i))
	}
	return out
}

// maybe returns a value or nil.
func maybe[T any](a *author, make func() T) *T {
	if a.IntN(2) == 0 {
		return nil
	}
	return new(make())
}

func (a *author) truth() string {
	all := []string{"true", "false", "has(object.metadata.labels)", "object.metadata.name != 'web'",
		"object.metadata.?labels[?'team'].orValue('') == 'shop'",
		"request.operation == 'CREATE'", "object.spec.nope == 1", "request.userInfo.username == \"developer\"", "!has(object.spec) || object.spec != null\n  && true // always"}
	if a.params {
		all = append(all, "params.data.mode == 'plain'", "params == null")
	}
	return pick(a, all...)
}

func (a *author) text() string {
	return pick(a, "'plain'", "object.metadata.name", "\"l1: \" + request.name", "string(object.metadata.labels.team)", "'ü # : - \\n'")
}

func (a *author) spec() v1alpha1.WebhookPolicySpec {
	a.params = a.IntN(3) == 0
	s := v1alpha1.WebhookPolicySpec{MatchConstraints: a.match(true)}
	if a.params {
		s.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
	}
	s.MatchConditions = some(a, 2, func(i int) admissionregistrationv1.MatchCondition {
		return admissionregistrationv1.MatchCondition{Name: fmt.Sprintf("c%d", i), Expression: a.truth()}
	})
	s.Variables = some(a, 3, func(i int) admissionregistrationv1.Variable {
		return admissionregistrationv1.Variable{Name: fmt.Sprintf("v%d", i), Expression: pick(a, a.truth(), a.text())}
	})
	s.FailurePolicy = maybe(a, func() admissionregistrationv1.FailurePolicyType {
		return pick(a, admissionregistrationv1.Fail, admissionregistrationv1.Ignore)
	})
	if a.IntN(3) == 0 {
		s.Mutations = append(some(a, 2, func(int) admissionregistrationv1.Mutation { return a.mutation() }), a.mutation())
		s.ReinvocationPolicy = maybe(a, func() admissionregistrationv1.ReinvocationPolicyType {
			return pick(a, admissionregistrationv1.NeverReinvocationPolicy, admissionregistrationv1.IfNeededReinvocationPolicy)
		})
	}
	if len(s.Mutations) == 0 || a.IntN(3) == 0 {
		s.Validations = v1alpha1.ValidationsOf(append(some(a, 2,
			func(int) admissionregistrationv1.Validation { return a.validation() }), a.validation()))
		s.AuditAnnotations = some(a, 2, func(i int) admissionregistrationv1.AuditAnnotation {
			return admissionregistrationv1.AuditAnnotation{Key: fmt.Sprintf("a%d", i), ValueExpression: a.text()}
		})
	}
	s.Bindings = append(some(a, 2, a.binding), a.binding(9))
	return s
}

func (a *author) validation() admissionregistrationv1.Validation {
	v := admissionregistrationv1.Validation{Expression: a.truth(), Message: pick(a, "", "plain", "yes", "1.5", "a: b # c", "ümlaut\tand tab")}
	if a.IntN(2) == 0 {
		v.MessageExpression = a.text()
	}
	v.Reason = maybe(a, func() metav1.StatusReason { return pick(a, metav1.StatusReasonInvalid, metav1.StatusReasonForbidden) })
	return v
}

func (a *author) mutation() admissionregistrationv1.Mutation {
	if a.IntN(2) == 0 {
		return admissionregistrationv1.Mutation{PatchType: admissionregistrationv1.PatchTypeJSONPatch,
			JSONPatch: &admissionregistrationv1.JSONPatch{
				Expression: pick(a, `[JSONPatch{op: "add", path: "/metadata/labels", value: {"a": "b"}}]`,
					`[JSONPatch{op: "remove", path: "/spec/nope"}]`, "[]")}}
	}
	return admissionregistrationv1.Mutation{PatchType: admissionregistrationv1.PatchTypeApplyConfiguration,
		ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{
			Expression: pick(a, `Object{metadata: Object.metadata{labels: {"added": "yes"}}}`,
				`Object{metadata: Object.metadata{annotations: {"name": object.metadata.name}}}`)}}
}

func (a *author) binding(i int) v1alpha1.Binding {
	b := v1alpha1.Binding{Name: fmt.Sprintf("b%d", i), ValidationActions: pick(a,
		[]admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		[]admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny, admissionregistrationv1.Audit},
		[]admissionregistrationv1.ValidationAction{admissionregistrationv1.Warn},
		[]admissionregistrationv1.ValidationAction{admissionregistrationv1.Audit})}
	if a.IntN(2) == 0 {
		b.MatchResources = a.match(false)
	}
	if a.params && a.IntN(4) > 0 {
		b.ParamRef = &admissionregistrationv1.ParamRef{
			ParameterNotFoundAction: new(pick(a, admissionregistrationv1.AllowAction, admissionregistrationv1.DenyAction)),
		}
		if a.IntN(3) == 0 {
			b.ParamRef.Selector = a.selector()
		} else {
			b.ParamRef.Name, b.ParamRef.Namespace = "made", pick(a, "", "shop")
		}
	}
	return b
}

func (a *author) match(rules bool) *admissionregistrationv1.MatchResources {
	m := &admissionregistrationv1.MatchResources{}
	if rules || a.IntN(3) == 0 {
		m.ResourceRules = append(some(a, 1, func(int) admissionregistrationv1.NamedRuleWithOperations { return a.rule() }), a.rule())
	}
	if a.IntN(6) == 0 {
		m.ExcludeResourceRules = append(m.ExcludeResourceRules, a.rule())
	}
	m.MatchPolicy = maybe(a, func() admissionregistrationv1.MatchPolicyType {
		return pick(a, admissionregistrationv1.Exact, admissionregistrationv1.Equivalent)
	})
	if a.IntN(3) == 0 {
		m.NamespaceSelector = a.selector()
	}
	if a.IntN(3) == 0 {
		m.ObjectSelector = a.selector()
	}
	return m
}

func (a *author) rule() (r admissionregistrationv1.NamedRuleWithOperations) {
	all := [][3]string{
		{"", "v1", "pods"}, {"", "v1", "configmaps"}, {"apps", "v1", "deployments"}, {"", "v1", "*"},
		{"apps", "*", "deployments/scale"},
	}
	t := pick(a, all...)
	r.APIGroups, r.APIVersions, r.Resources = []string{t[0]}, []string{t[1]}, []string{t[2]}
	r.Operations = pick(a, []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
		[]admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		[]admissionregistrationv1.OperationType{
			admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete,
		})
	r.Scope = maybe(a, func() admissionregistrationv1.ScopeType {
		return pick(a, admissionregistrationv1.AllScopes, admissionregistrationv1.NamespacedScope)
	})
	if a.IntN(6) == 0 {
		r.ResourceNames = []string{"web", "made"}
	}
	return r
}

func (a *author) selector() *metav1.LabelSelector {
	return pick(a, &metav1.LabelSelector{MatchLabels: map[string]string{"team": "shop"}},
		&metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "team", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"yes", "1"}},
			},
		},
		&metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpExists},
			},
		})
}
