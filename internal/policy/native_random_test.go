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
type author struct{ *rand.Rand }

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
	return pick(a,
		"true", "false", "false", "object == null", "oldObject != null", "namespaceObject == null", "has(object.metadata.labels.team)", "has(object.spec.hostNetwork)",
		"request.dryRun", "object == oldObject", "object.spec.nope == 1", "has(request.options.fieldManager)", "has(object.spec.none)", "object.spec.none == null",
		"object.metadata.labels.team == 'shop'", "'devs' in request.userInfo.groups", "type(object.spec.count) == int", "object.spec.empty == {}",
		`quantity(string(object.spec.containers[0].resources.limits.cpu)).isLessThan(quantity("1"))`, "object.spec.containers[1] != null", "namespaceObject.spec.finalizers == ['kubernetes']",
	)
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
		v := admissionregistrationv1.Validation{Expression: a.use(a.truth(3), p.Spec.Variables)}
		v.Message = pick(a, "", "", "  plain  ", "é\tü")
		if a.IntN(2) == 0 {
			v.MessageExpression = a.text(2)
		}
		if a.IntN(2) == 0 {
			reason := pick(a, metav1.StatusReasonForbidden, metav1.StatusReasonInvalid, metav1.StatusReasonUnauthorized, metav1.StatusReasonRequestEntityTooLarge)
			v.Reason = &reason
		}
		p.Spec.Validations = append(p.Spec.Validations, v)
	}
	failurePolicy := pick(a, failurePolicies...)
	p.Spec.FailurePolicy = &failurePolicy
	all := effects()
	p.Spec.Bindings = all[pick(a, slices.Sorted(maps.Keys(all))...)]
	return p
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
	a := author{rand.New(rand.NewPCG(*seed, 0))}
	inputs := testInputs(t)
	var allowed, denied, failed, warned int
	for i := range *randomPolicies {
		var policies []*v1alpha1.WebhookPolicy
		for j := range 1 + a.IntN(3) {
			policies = append(policies, a.compiling(fmt.Sprintf("p%d", j)))
		}
		oracle, group := newOracle(policies, testNamespaces), groupOf(t, policies)
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
			case got.Allowed && len(got.Warnings)+len(got.Audit) > 0:
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
