package policy

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

var (
	seed           = flag.Uint64("seed", 1, "seed of the generated policies")
	randomPolicies = flag.Int("policies", 120, "number of the generated groups of policies")
)

// author writes policies at random: most compile, many fail at run time.
type author struct {
	*rand.Rand
	params, asks bool // whether the expressions read params, and ask the authorizer
}

func pick[T any](a author, from ...T) T { return from[a.IntN(len(from))] }

// text is an expression of type string, number one of type int, truth one of
// type bool; variables are those declared so far, all of type dyn or bool.
func (a author) text(depth int) string {
	if depth > 0 && a.IntN(3) == 0 {
		return pick(a,
			a.text(depth-1)+" + "+a.text(depth-1),
			"("+a.truth(depth-1)+" ? "+a.text(depth-1)+" : "+a.text(depth-1)+")",
			"string("+a.number(depth-1)+")",
			a.text(0)+".upperAscii()",
		)
	}
	if a.params && a.IntN(4) == 0 {
		return pick(a, "string(params.metadata.name)", "string(params.data.max)", "params.kind + params.apiVersion", "string(params.spec.max)", "string(params.metadata.labels.set)")
	}
	if a.asks && a.IntN(8) == 0 {
		return a.question() + pick(a, ".reason()", ".error()")
	}
	return pick(a,
		`"x"`, `""`, `" a b "`, `"l1\nl2"`, "request.operation", "request.name", "request.namespace", "request.userInfo.username", "request.kind.kind",
		"request.subResource", "request.resource.version", "request.requestKind.version", "string(object.metadata.name)", "string(object.metadata.labels.team)",
		"string(oldObject.metadata.labels.team)", "string(object.spec.nope)", "string(request.options.kind)", "namespaceObject.metadata.name",
		`namespaceObject.metadata.labels["tier"]`, "object.metadata.?generateName.orValue('none')", "string(object.spec.containers[0].image)",
		"string(object.kind)", "string(object.spec)", `request.userInfo.groups.join("/")`, "namespaceObject.metadata.labels.nope",
	)
}

func (a author) number(depth int) string {
	if depth > 0 && a.IntN(3) == 0 {
		return pick(a,
			a.number(depth-1)+" "+pick(a, "+", "-", "*", "/", "%")+" "+a.number(0),
			"("+a.truth(depth-1)+" ? "+a.number(depth-1)+" : "+a.number(depth-1)+")",
			"("+a.text(depth-1)+").size()",
		)
	}
	if a.params && a.IntN(4) == 0 {
		return pick(a, "int(params.data.max)", "int(params.spec.max)", "params.metadata.labels.size()", "params.spec.names.size()")
	}
	return pick(a,
		"0", "1", "3", "int(object.spec.terminationGracePeriodSeconds)", "int(object.spec.replicas)", "int(object.spec.count)", "int(object.spec.ratio)",
		"int(object.spec.big)", "object.spec.containers.size()", "object.metadata.labels.size()", "int(object.spec.containers[1].readinessProbe.tcpSocket.port)",
		"int(request.options.gracePeriodSeconds)", "object.spec.mixed.size()", "size(request.userInfo.groups)", "9223372036854775807",
	)
}

func (a author) truth(depth int) string {
	if depth > 0 && a.IntN(3) > 0 {
		return pick(a,
			"("+a.truth(depth-1)+" "+pick(a, "&&", "||", "==", "!=")+" "+a.truth(depth-1)+")",
			"!"+a.truth(depth-1),
			a.text(depth-1)+" "+pick(a, "==", "!=", "<")+" "+a.text(depth-1),
			a.number(depth-1)+" "+pick(a, "==", "!=", "<", ">=")+" "+a.number(depth-1),
			a.text(0)+pick(a, ".contains", ".startsWith", ".matches")+"("+a.text(0)+")",
			"object.spec.containers."+pick(a, "all", "exists", "exists_one")+"(c, "+pick(a, "c.name == ", "c.image != ", "has(c.resources.limits) && c.name != ")+a.text(0)+")",
			"object.metadata.labels.all(k, k != "+a.text(0)+")",
			"dyn("+a.number(0)+") == "+pick(a, "1.0", "3", "object.spec.ratio", "object.spec.tiny"),
		)
	}
	if a.params && a.IntN(4) == 0 {
		return pick(a, "params == null", "params != null", "has(params.data.max)", "params.spec.max > 5", `params.metadata.name.startsWith("f")`, "params.spec.names[1] == null", `params.metadata.labels == {"set": "a"}`, "has(params.metadata.namespace)")
	}
	if a.asks && a.IntN(6) == 0 {
		return a.question() + pick(a, ".allowed()", ".allowed()", ".errored()")
	}
	return pick(a,
		"true", "false", "false", "object == null", "oldObject != null", "namespaceObject == null", "has(object.metadata.labels.team)", "has(object.spec.hostNetwork)",
		"request.dryRun", "object == oldObject", "object.spec.nope == 1", "has(request.options.fieldManager)", "has(object.spec.none)", "object.spec.none == null",
		"object.metadata.labels.team == 'shop'", "'devs' in request.userInfo.groups", "type(object.spec.count) == int", "object.spec.empty == {}",
		`quantity(string(object.spec.containers[0].resources.limits.cpu)).isLessThan(quantity("1"))`, "object.spec.containers[1] != null", "namespaceObject.spec.finalizers == ['kubernetes']",
	)
}

// question is what is put to the authorizer; a few are malformed at run time.
func (a author) question() string {
	subject := pick(a, "authorizer.requestResource", "authorizer.requestResource", `authorizer.group("").resource("pods")`, `authorizer.path("/x")`, `authorizer.serviceAccount("shop", "robot").group("apps").resource("deployments").subresource("scale").namespace("shop")`,
		`authorizer.group("").resource("pods").fieldSelector("a=b").labelSelector("c in (d")`, "authorizer.group(object.metadata.name).resource(string(object.spec.nope))")
	return subject + `.check("` + pick(a, "allow", "deny", "none", "fail", "partly") + `")`
}

// use puts variables into an expression of type bool. It compares none with a
// value of another type; see TestComparingAnObjectWithAScalarDiffers.
func (a author) use(expression string, variables []admissionregistrationv1.Variable) string {
	for range a.IntN(3) {
		if len(variables) == 0 {
			break
		}
		name := "variables." + pick(a, variables...).Name
		expression = pick(a, "("+expression+" || type(dyn("+name+")) == bool)", "("+expression+" && type("+name+") != string)", "(dyn("+name+") != null ? "+expression+" : false)")
	}
	return expression
}

func (a author) policy(name string) *v1alpha1.WebhookPolicy {
	p := &v1alpha1.WebhookPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.MatchConstraints = allRules()
	if a.params = a.IntN(3) == 0; a.params {
		kind := pick(a, configMaps, configMaps, limits, admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "Nope"})
		p.Spec.ParamKind = &kind
	}
	a.asks = a.IntN(3) == 0
	if a.IntN(2) == 0 {
		for i := range a.IntN(4) {
			expression := pick(a, a.use(a.truth(1), p.Spec.Variables), a.text(1), a.number(1), "object", "oldObject", "request", "namespaceObject")
			p.Spec.Variables = append(p.Spec.Variables, admissionregistrationv1.Variable{Name: fmt.Sprintf("v%d", i), Expression: expression})
		}
	}
	for i := range max(0, a.IntN(6)-3) {
		expression := pick(a, "true", a.use(a.truth(1), p.Spec.Variables), "request.resource.resource != 'pods' || "+a.truth(1))
		p.Spec.MatchConditions = append(p.Spec.MatchConditions, admissionregistrationv1.MatchCondition{Name: fmt.Sprintf("c%d", i), Expression: expression})
	}
	for range 1 + a.IntN(4) {
		p.Spec.Validations = append(p.Spec.Validations, a.validation(p.Spec.Variables))
	}
	for i := range max(0, a.IntN(6)-3) {
		expression := pick(a, a.text(2), "("+a.use(a.truth(1), p.Spec.Variables)+") ? "+a.text(1)+` : ""`, "null", a.text(0))
		p.Spec.AuditAnnotations = append(p.Spec.AuditAnnotations, admissionregistrationv1.AuditAnnotation{Key: fmt.Sprintf("k%d", i), ValueExpression: expression})
	}
	failurePolicy := pick(a, failurePolicies...)
	p.Spec.FailurePolicy = &failurePolicy
	for i := range 1 + a.IntN(3) {
		p.Spec.Bindings = append(p.Spec.Bindings, a.binding(fmt.Sprintf("b%d", i)))
	}
	return p
}

func (a author) validation(variables []admissionregistrationv1.Variable) v1alpha1.Validation {
	v := v1alpha1.Validation{Expression: a.use(a.truth(3), variables)}
	v.Message = pick(a, "", "", "  plain  ", "é\tü")
	if a.IntN(2) == 0 {
		a.asks = false // messages have no authorizer
		v.MessageExpression = a.text(2)
	}
	if a.IntN(2) == 0 {
		reason := pick(a, metav1.StatusReasonForbidden, metav1.StatusReasonInvalid, metav1.StatusReasonUnauthorized, metav1.StatusReasonRequestEntityTooLarge)
		v.Reason = &reason
	}
	return v
}

func (a author) binding(name string) v1alpha1.Binding {
	b := v1alpha1.Binding{Name: name, ValidationActions: actionSets[pick(a, slices.Sorted(maps.Keys(actionSets))...)]}
	if a.params && a.IntN(4) > 0 {
		b.ParamRef = a.paramRef()
	}
	if a.IntN(3) == 0 {
		b.MatchResources = a.matchResources()
	}
	return b
}

func (a author) paramRef() *admissionregistrationv1.ParamRef {
	missing := pick(a, admissionregistrationv1.AllowAction, admissionregistrationv1.DenyAction)
	ref := &admissionregistrationv1.ParamRef{ParameterNotFoundAction: &missing, Namespace: pick(a, "", "", "", "shop", "office")}
	if a.IntN(2) == 0 {
		ref.Name = pick(a, "first", "second", "third", "none", "low", "high")
		return ref
	}
	ref.Selector = pick(a, &metav1.LabelSelector{}, &metav1.LabelSelector{MatchLabels: map[string]string{"set": pick(a, "a", "b", "z")}})
	return ref
}

func (a author) matchResources() *admissionregistrationv1.MatchResources {
	selector := func(keys ...string) *metav1.LabelSelector {
		if a.IntN(2) == 0 {
			return nil
		}
		r := metav1.LabelSelectorRequirement{Key: pick(a, keys...), Operator: pick(a, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist, metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn)}
		if r.Operator == metav1.LabelSelectorOpIn || r.Operator == metav1.LabelSelectorOpNotIn {
			r.Values = []string{"shop", "prod"}
		}
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{r}}
	}
	rules := func() (out []admissionregistrationv1.NamedRuleWithOperations) {
		for range max(0, a.IntN(4)-1) {
			out = append(out, admissionregistrationv1.NamedRuleWithOperations{
				ResourceNames: pick(a, nil, nil, nil, []string{"web"}, []string{"other"}),
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{pick(a, admissionregistrationv1.OperationAll, admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete, admissionregistrationv1.Connect)},
					Rule: admissionregistrationv1.Rule{
						APIGroups: []string{pick(a, "*", "", "apps", "example.com")}, APIVersions: []string{pick(a, "*", "v1", "v1beta1")}, Resources: []string{pick(a, "*", "*/*", "pods", "pods/*", "*/status", "deployments")},
					},
				},
			})
		}
		return out
	}
	policy := pick(a, admissionregistrationv1.Equivalent, admissionregistrationv1.Exact)
	return &admissionregistrationv1.MatchResources{NamespaceSelector: selector("tier", "team", "none"), ObjectSelector: selector("team", "none"), ResourceRules: rules(), ExcludeResourceRules: rules(), MatchPolicy: &policy}
}

// compiling is the next policy that compiles; the API server stores no others.
func (a author) compiling(name string) *v1alpha1.WebhookPolicy {
	for {
		p := a.policy(name)
		if _, errs := sharedCompiler.Compile(p); len(errs) == 0 {
			return p
		}
	}
}

// TestSameAnswerAsKubernetesForGeneratedPolicies compares with the native
// engine over policies written at random.
func TestSameAnswerAsKubernetesForGeneratedPolicies(t *testing.T) {
	t.Logf("repeat with -seed=%d", *seed)
	a := author{Rand: rand.New(rand.NewPCG(*seed, 0))}
	inputs := testInputs(t)
	var allowed, denied, failed, warned int
	for i := range *randomPolicies {
		var policies []*v1alpha1.WebhookPolicy
		for j := range 1 + a.IntN(3) {
			policies = append(policies, a.compiling(fmt.Sprintf("p%d", j)))
		}
		oracle, group := newOracle(policies, testWorld), groupOf(t, policies)
		for _, name := range slices.Sorted(maps.Keys(inputs)) {
			before := t.Failed()
			got := compare(t, oracle, group, inputs[name])
			if t.Failed() && !before {
				t.Errorf("policies %d of seed %d, request %q", i, *seed, name)
				for _, p := range policies {
					t.Logf("%+v", p.Spec)
				}
			}
			switch {
			case got.Allowed && len(got.Warnings)+len(got.Annotations) > 0:
				warned++
			case got.Allowed:
				allowed++
			case strings.Contains(got.Message, "resulted in error"):
				failed++
			default:
				denied++
			}
		}
	}
	t.Logf("allowed %d, warned or audited %d, denied %d, denied by an error %d", allowed, warned, denied, failed)
	if few := *randomPolicies * len(inputs) / 20; *randomPolicies > 50 && (allowed < few || denied < few || failed < few || warned < few) {
		t.Errorf("fewer than %d of some kind of answer: the policies have lost their variety", few)
	}
}
