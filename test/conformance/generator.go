package conformance

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// requestsPerPolicy is how many requests are put to each generated policy.
const requestsPerPolicy = 4

// Generate makes policies at random, from a number on, each with some requests;
// the same seed and number make the same one. One policy has several requests
// as installing policies is what takes the time.
func Generate(seed uint64, from, policies int) []Case {
	out := make([]Case, policies)
	for i := range out {
		number := from + i
		a := author{rand.New(rand.NewPCG(seed, uint64(number)))}
		out[i] = a.makeCase(fmt.Sprintf("seed %d, number %d", seed, number), requestsPerPolicy)
	}
	return out
}

// author writes policies at random: nearly all compile, many fail at run time.
type author struct{ *rand.Rand }

func pick[T any](a author, from ...T) T { return from[a.IntN(len(from))] }

// chance is true once in n times.
func (a author) chance(n int) bool { return a.IntN(n) == 0 }

func (a author) makeCase(name string, requests int) Case {
	t := pick(a, targets()...)
	c := Case{Name: name, Tier: pick(a, tiers()...), ByObject: t.cluster, Generated: true}
	c.Policies = []v1alpha1.WebhookPolicySpec{a.spec(t)}
	for range requests {
		c.Requests = append(c.Requests, a.request(t))
	}
	if p := &c.Policies[0]; t.resource == "pods" && a.chance(2) {
		p.PodTemplates = onTemplates(p)
	}
	if a.chance(3) {
		a.except(&c, t)
	}
	return c
}

// outsideTemplates finds mutations of what pod templates do not have: Ostiary rejects them.
var outsideTemplates = regexp.MustCompile(`"/(metadata/name|absent)`)

// onTemplates returns podTemplates for a policy about Pods that can have it. The native policy
// has none: about Pods both decide alike.
func onTemplates(s *v1alpha1.WebhookPolicySpec) *v1alpha1.PodTemplates {
	for _, m := range s.Mutations {
		if m.JSONPatch != nil && outsideTemplates.MatchString(m.JSONPatch.Expression) {
			return nil
		}
	}
	with := *s
	if with.PodTemplates = (&v1alpha1.PodTemplates{}); with.TemplateSpec() == nil {
		return nil
	}
	return with.PodTemplates
}

func (a author) spec(t target) v1alpha1.WebhookPolicySpec {
	var s v1alpha1.WebhookPolicySpec
	if a.chance(3) {
		s.ParamKind = a.paramKind(t)
	}
	e := expressions{author: a, params: s.ParamKind, target: t}
	s.MatchConstraints = a.match(t, false)
	for i := range max(0, a.IntN(6)-2) {
		e.variables = append(e.variables, a.variable(e, i))
	}
	for _, v := range e.variables {
		s.Variables = append(s.Variables, admissionregistrationv1.Variable{Name: v.name, Expression: v.expression})
	}
	conditions := e
	conditions.variables = nil // the API server refuses them there
	for i := range max(0, a.IntN(6)-3) {
		s.MatchConditions = append(s.MatchConditions, admissionregistrationv1.MatchCondition{
			Name:       fmt.Sprintf("c%d", i),
			Expression: pick(a, "true", conditions.truth(1), conditions.truth(2)),
		})
	}
	mutates := a.chance(3)
	if mutates {
		a.mutate(&s, e)
	}
	if !mutates || a.chance(3) {
		for range 1 + a.IntN(3) {
			s.Validations = append(s.Validations, a.validation(e))
		}
	}
	if len(s.Validations) > 0 && a.chance(4) {
		s.AuditAnnotations = a.auditAnnotations(e)
	}
	if a.chance(2) {
		s.FailurePolicy = new(pick(a, admissionregistrationv1.Fail, admissionregistrationv1.Ignore))
	}
	s.Bindings = a.bindings(t, s.ParamKind)
	if mutates { // the order in which several bindings mutate is not known
		s.Bindings = onlyOne(s.Bindings)
	}
	if mutates && len(s.Validations) == 0 {
		s.MatchConstraints, _ = mutable(s.MatchConstraints) // nothing that is deleted is mutated
	}
	return s
}

// mutate adds mutations, and keeps from the policy what mutations do not allow.
func (a author) mutate(s *v1alpha1.WebhookPolicySpec, e expressions) {
	if e.target.resource == "horizontalpodautoscalers" { // see the known difference other-version
		s.MatchConstraints.MatchPolicy = new(admissionregistrationv1.Exact)
	}
	for range 1 + a.IntN(3) {
		s.Mutations = append(s.Mutations, a.mutation(e))
	}
	if a.chance(3) { // what may run twice has to come to the same: see the known difference reinvocation
		s.ReinvocationPolicy = new(pick(a, admissionregistrationv1.NeverReinvocationPolicy, admissionregistrationv1.IfNeededReinvocationPolicy))
		s.Mutations = []admissionregistrationv1.Mutation{idempotent(e)}
	}
}

func (a author) auditAnnotations(e expressions) []admissionregistrationv1.AuditAnnotation {
	out := make([]admissionregistrationv1.AuditAnnotation, 1+a.IntN(2))
	for i := range out {
		out[i] = admissionregistrationv1.AuditAnnotation{
			Key: fmt.Sprintf("a%d", i), ValueExpression: pick(a, e.text(1), e.text(2), "null", e.truth(1)+" ? "+e.text(0)+" : null"),
		}
	}
	return out
}

type variable struct {
	name, expression string
	kind             byte // t text, n number, b truth
}

func (a author) variable(e expressions, i int) variable {
	v := variable{name: fmt.Sprintf("v%d", i), kind: pick[byte](a, 't', 'n', 'b')}
	switch v.kind {
	case 't':
		v.expression = e.text(1)
	case 'n':
		v.expression = e.number(1)
	default:
		v.expression = e.truth(1)
	}
	return v
}

func (a author) validation(e expressions) v1alpha1.Validation {
	v := v1alpha1.Validation{Expression: e.truth(3), Message: pick(a, "", "", "plain", "  spaced  ", "ümlaut\tand tab")}
	if a.chance(2) {
		without := e
		without.noAuthorizer = true
		v.MessageExpression = without.text(2)
	}
	if a.chance(2) {
		v.Reason = new(pick(a, metav1.StatusReasonForbidden, metav1.StatusReasonInvalid, metav1.StatusReasonRequestEntityTooLarge))
	}
	return v
}

// match selects the target, or sometimes not quite; a binding's may be without rules.
func (a author) match(t target, ofBinding bool) *admissionregistrationv1.MatchResources {
	m := &admissionregistrationv1.MatchResources{}
	if !ofBinding || a.chance(3) {
		m.ResourceRules = append(m.ResourceRules, a.rule(t))
		switch a.IntN(8) {
		case 0: // alone, or the object is sent in the version of a rule that names another
			m.ResourceRules[0].ResourceNames = []string{pick(a, "made", t.stored), "other"}
		case 1:
			m.ResourceRules = append(m.ResourceRules, a.rule(t))
		}
	}
	if a.chance(6) {
		r := a.rule(t)
		r.Operations = []admissionregistrationv1.OperationType{
			pick(a, admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete),
		}
		m.ExcludeResourceRules = append(m.ExcludeResourceRules, r)
	}
	if a.chance(3) {
		m.MatchPolicy = new(pick(a, admissionregistrationv1.Exact, admissionregistrationv1.Equivalent))
	}
	if a.chance(4) || ofBinding {
		m.NamespaceSelector = a.selector("tier", "prod", "dev")
	}
	if a.chance(5) {
		m.ObjectSelector = a.selector("team", "shop", "search")
	}
	return m
}

func (a author) selector(key string, values ...string) *metav1.LabelSelector {
	return pick(a,
		&metav1.LabelSelector{},
		&metav1.LabelSelector{MatchLabels: map[string]string{key: pick(a, values...)}},
		&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: metav1.LabelSelectorOpExists}}},
		&metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: key, Operator: metav1.LabelSelectorOpNotIn, Values: values[:1]},
			},
		},
	)
}

func (a author) rule(t target) admissionregistrationv1.NamedRuleWithOperations {
	var r admissionregistrationv1.NamedRuleWithOperations
	r.APIGroups, r.APIVersions = []string{t.group}, []string{pick(a, t.versions...)}
	r.Resources = []string{t.resource}
	switch a.IntN(8) {
	case 0:
		r.Resources = []string{t.resource + "/*"}
	case 1, 2:
		for _, s := range t.subresources {
			r.Resources = append(r.Resources, t.resource+"/"+s)
		}
	case 3:
		r.APIVersions = []string{"*"}
	}
	r.Operations = []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll}
	if a.chance(3) {
		r.Operations = pick(a,
			[]admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			[]admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
			[]admissionregistrationv1.OperationType{
				admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete,
				admissionregistrationv1.Connect,
			},
		)
	}
	if a.chance(6) {
		r.Scope = new(pick(a, admissionregistrationv1.AllScopes, admissionregistrationv1.NamespacedScope, admissionregistrationv1.AllScopes))
	}
	return r
}

func (a author) paramKind(t target) *admissionregistrationv1.ParamKind {
	if t.cluster || a.chance(4) {
		return &admissionregistrationv1.ParamKind{APIVersion: "conformance.test/v1", Kind: "Zone"}
	}
	return pick(a, &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"},
		&admissionregistrationv1.ParamKind{APIVersion: "conformance.test/v1", Kind: "Limit"})
}

func (a author) bindings(t target, kind *admissionregistrationv1.ParamKind) []v1alpha1.Binding {
	if kind == nil && a.chance(8) {
		return nil
	}
	all := [][]admissionregistrationv1.ValidationAction{
		{admissionregistrationv1.Deny}, {admissionregistrationv1.Deny}, {admissionregistrationv1.Deny, admissionregistrationv1.Audit},
		{admissionregistrationv1.Warn}, {admissionregistrationv1.Audit}, {admissionregistrationv1.Audit}, {admissionregistrationv1.Audit},
		{admissionregistrationv1.Warn, admissionregistrationv1.Audit},
	}
	var out []v1alpha1.Binding
	for i := range 1 + max(0, a.IntN(5)-2) {
		b := v1alpha1.Binding{Name: fmt.Sprintf("b%d", i), ValidationActions: pick(a, all...)}
		if a.chance(3) {
			b.MatchResources = a.match(t, true)
		}
		if kind != nil && !a.chance(8) {
			b.ParamRef = a.paramRef(kind)
		}
		out = append(out, b)
	}
	return out
}

func onlyOne(bindings []v1alpha1.Binding) []v1alpha1.Binding {
	if len(bindings) == 0 {
		return bindings
	}
	if ref := bindings[0].ParamRef; ref != nil && ref.Selector != nil {
		ref.Selector.MatchLabels["extra"] = "yes"
	}
	return bindings[:1]
}

func (a author) paramRef(kind *admissionregistrationv1.ParamKind) *admissionregistrationv1.ParamRef {
	ref := &admissionregistrationv1.ParamRef{
		ParameterNotFoundAction: new(pick(a, admissionregistrationv1.AllowAction, admissionregistrationv1.DenyAction)),
	}
	name, namespaced := "limits-a", true
	switch kind.Kind {
	case "Zone":
		name, namespaced = "global", false
	case "Limit":
		name = "strict"
	}
	switch a.IntN(5) {
	case 0:
		ref.Selector = pick(a,
			&metav1.LabelSelector{MatchLabels: map[string]string{"role": "limits"}},
			&metav1.LabelSelector{MatchLabels: map[string]string{"role": "limits", "extra": "yes"}},
			&metav1.LabelSelector{MatchLabels: map[string]string{"role": "none"}},
		)
	case 1:
		ref.Name = "absent"
	default:
		ref.Name = name
	}
	if namespaced && a.chance(3) {
		ref.Namespace = "params"
	}
	return ref
}

// request is one that the target may get.
func (a author) request(t target) Request {
	r := pick(a, t.requests...)
	if a.chance(3) {
		r.User = pick(a,
			&User{Name: "alice", UID: "u1", Groups: []string{"editors", "system:authenticated"}, Extra: map[string][]string{"scopes": {"a", "b"}}},
			&User{Name: "bob", Groups: []string{"editors", "devs"}},
			&User{Name: "root", Groups: []string{"system:masters"}},
		)
	}
	if r.Method == http.MethodDelete && a.chance(2) {
		r.Body = json.RawMessage(`{"apiVersion":"v1","kind":"DeleteOptions","gracePeriodSeconds":5,"propagationPolicy":"Orphan"}`)
	}
	return r
}
