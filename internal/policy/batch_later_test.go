package policy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"

	"github.com/ostiary/ostiary/internal/celengine/uncounted"
)

// TestLaterPolicies: the batch evaluates policies that need more than the objects and the request, with the answers of
// an evaluation alone.
func TestLaterPolicies(t *testing.T) {
	const (
		all      = "{name: all, validationActions: [Deny], paramRef: {selector: {}, parameterNotFoundAction: Deny}}"
		second   = "{name: second, validationActions: [Deny, Audit], paramRef: {name: second, parameterNotFoundAction: Deny}}"
		none     = "{name: none, validationActions: [Deny]}"
		missing  = "{name: missing, validationActions: [Deny], paramRef: {name: missing, parameterNotFoundAction: Deny}}"
		allowed  = "{name: missing, paramRef: {name: missing, parameterNotFoundAction: Allow}}"
		selected = "{name: selected, validationActions: [Deny], matchResources: {objectSelector: {matchLabels: {team: shop}}}}"
		other    = "{name: other, validationActions: [Warn], matchResources: {objectSelector: {matchLabels: {team: other}}}}"
		asks     = `authorizer.group("").resource("pods").check("%s").allowed()`
	)
	validations := func(expressions ...string) string {
		var out strings.Builder
		out.WriteString("validations:\n")
		for _, e := range expressions {
			fmt.Fprintf(&out, "- {expression: %q, messageExpression: %q}\n", e, `"of " + string(object.metadata.name)`)
		}
		return out.String()
	}
	variables := "variables: [{name: name, expression: 'object.metadata.name'}, {name: max, expression: 'int(params.data.max)'}, " +
		"{name: sum, expression: 'variables.max + size(string(variables.name))'}]\n"
	tests := map[string]struct {
		spec     string
		alone    bool // it is evaluated so
		ratchets bool // and alone if there is a stored object
	}{
		"all params":          {spec: ofConfigMaps + tooFew + bound(all)},
		"all params pass":     {spec: ofConfigMaps + validations(`params.data.max != "x"`, "object != null") + bound(all)},
		"one of them":         {spec: ofConfigMaps + tooFew + bound(second)},
		"null":                {spec: ofConfigMaps + anyParam + bound(none)},
		"null, and an error":  {spec: ofConfigMaps + validations(`params.data.max == "1"`) + bound(none)},
		"several bindings":    {spec: ofConfigMaps + anyParam + bound(none, second, all)},
		"missing, Deny":       {spec: ofConfigMaps + tooFew + bound(missing, second)},
		"missing, Allow":      {spec: ofConfigMaps + tooFew + bound(allowed)},
		"params in variables": {spec: ofConfigMaps + variables + validations("variables.sum == 5", "variables.max < 3") + bound(all)},
		"params in a message": {
			spec: ofConfigMaps + `validations: [{expression: 'false', messageExpression: 'string(params.data.max)'}]` + "\n" + bound(all),
		},
		"a field is missing": {spec: ofConfigMaps + validations(`params.data.no == "x"`, `has(params.data.no)`) + bound(all)},
		"another error":      {spec: ofConfigMaps + validations(`params.data.max + 1 == 2`, `int(params.metadata.name) == 1`) + bound(all)},
		"an error of a variable": {
			spec: ofConfigMaps + "variables: [{name: x, expression: 'params.no.x'}]\n" + validations(`variables.x == 1`) + bound(all),
		},
		"a condition": {
			spec: ofConfigMaps + "matchConditions: [{name: c, expression: 'params.data.max == \"2\"'}]\n" + validations("false") + bound(all),
		},
		"an error of a condition": {
			spec:  ofConfigMaps + "matchConditions: [{name: c, expression: 'params.no == 2'}]\n" + validations("false") + bound(second),
			alone: true,
		},
		"params as a whole": {
			spec: ofConfigMaps + validations("params == object", "params.size() == 9", "params.all(k, k != \"x\")") + bound(all),
		},
		"a kind without params": {spec: ofConfigMaps + validations("object.spec.no == 1") + bound(second)},
		"custom params": {
			spec: ofLimits +
				validations("params.spec.max > 5", `params.spec.names[0] == "web"`, "params.spec.names.exists(n, n == 1.5)") + bound(all),
		},
		"failurePolicy Ignore": {spec: "failurePolicy: Ignore\n" + ofConfigMaps + validations(`params.data.no == "x"`) + bound(all)},

		"annotations": {
			spec: "auditAnnotations: [{key: a, valueExpression: 'string(object.metadata.name)'}, {key: b, valueExpression: 'null'}]\n" +
				validations("true"),
		},
		"annotations of params": {
			spec: ofConfigMaps + "auditAnnotations: [{key: a, valueExpression: '\"max \" + params.data.max'}]\n" +
				validations("params.data.max == \"2\"") + bound(all),
		},
		"an error of an annotation": {
			spec: "auditAnnotations: [{key: a, valueExpression: 'string(object.spec.no)'}, {key: b, valueExpression: 'string(1 / 0)'}]\n" +
				validations("true"),
		},
		"an annotation and an error": {
			spec: "auditAnnotations: [{key: a, valueExpression: '\"x\"'}]\n" + validations("object.spec.no == 1"),
		},
		"an annotation of a namespace": {
			spec:  "auditAnnotations: [{key: a, valueExpression: 'namespaceObject.metadata.name'}]\n" + validations("true"),
			alone: true,
		},

		"a namespace": {spec: validations(
			`namespaceObject == null || namespaceObject.metadata.labels.tier == "prod"`, `namespaceObject.metadata.labels.no == "x"`,
			`namespaceObject.metadata.?labels[?"tier"].orValue("") == "test"`, `has(namespaceObject.metadata.deletionTimestamp)`,
		)},
		"a namespace in a message": {
			spec: `validations: [{expression: 'false', messageExpression: 'namespaceObject.metadata.name + namespaceObject.status.phase'}]`,
		},
		"a namespace in a variable": {
			spec: "variables: [{name: l, expression: 'namespaceObject.metadata.labels'}]\n" +
				validations(`variables.l.tier == "x"`, `variables.l.all(k, k == "tier")`),
		},
		"a time of a namespace": {
			spec: validations(`string(namespaceObject.metadata.creationTimestamp) == "x"`,
				`namespaceObject.metadata.creationTimestamp == timestamp("2026-01-01T00:00:00Z")`),
		},
		"a variable with a time": {
			spec: "variables: [{name: at, expression: 'namespaceObject.metadata.creationTimestamp'}]\n" +
				validations(`string(variables.at) == "x"`),
			alone: true,
		},
		"a condition and a namespace": {
			spec: "matchConditions: [{name: c, expression: 'object != null'}]\n" + validations(`namespaceObject.metadata.name != "shop"`),
		},
		"a condition of a namespace": {
			spec:  "matchConditions: [{name: c, expression: 'namespaceObject == null'}]\n" + validations(`namespaceObject != null`),
			alone: true,
		},

		"asks":            {spec: validations(fmt.Sprintf(asks, "allow"), fmt.Sprintf(asks, "deny"), "object.spec.no == 1")},
		"asks, no answer": {spec: validations(fmt.Sprintf(asks, "fail")+" || true", "false")},
		"asks by a variable": {
			spec: "variables: [{name: may, expression: '" + fmt.Sprintf(asks, "deny") + "'}]\n" + validations("variables.may", "object != null"),
		},
		"asks behind a condition": {
			spec: "matchConditions: [{name: c, expression: 'object == null'}]\n" + validations(fmt.Sprintf(asks, "deny")),
		},
		"asks too often": {
			spec: validations(strings.Repeat(fmt.Sprintf(asks, "allow")+" && ", 2) + fmt.Sprintf(asks, "allow")),
		},
		"asks in many": {
			spec:  validations(strings.Split(strings.Repeat(fmt.Sprintf(asks, "allow")+"\n", 15)+"false", "\n")...),
			alone: true,
		},
		"asks, and ratchets": {
			spec: "ratchet: true\n" + validations(fmt.Sprintf(asks, "deny"), "object != null"), ratchets: true,
		},
		"asks in a condition": {
			spec:  "matchConditions: [{name: c, expression: '" + fmt.Sprintf(asks, "allow") + "'}]\n" + validations("false"),
			alone: true,
		},

		"a binding that matches":     {spec: validations("object.spec.containers.size() == 1") + bound(selected, other)},
		"a binding that matches not": {spec: validations("false") + bound(other)},
		"names": {
			spec: ofConfigMaps +
				"validations: [{name: first, expression: 'params.data.max == \"2\"'}, {name: second, expression: 'true'}]\n" +
				bound(all, none),
		},
		"names behind a condition": {
			spec: ofConfigMaps +
				"matchConditions: [{name: c, expression: 'false'}]\nvalidations: [{name: first, expression: 'false'}]\n" + bound(all),
		},
	}
	denied, failed := 0, 0
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			group, alone := groupFrom(t, map[string]string{"p": tt.spec}), groupFrom(t, map[string]string{"p": tt.spec})
			alone.policies[0].quick = nil
			alone = regroup(alone)
			for _, operation := range []admission.Operation{admission.Create, admission.Update} {
				review := podInput(t, operation).review(t)
				run := func(g *Group) (answer any, decisions map[string]Decision, evaluatedAlone int) {
					host := testWorld.host()
					decisions = map[string]Decision{}
					host.Observe = observeInto(decisions)
					host.Evaluated = func(_, alone int) { evaluatedAlone = alone }
					answer = evaluate(t, g, review, host)
					return answer, decisions, evaluatedAlone
				}
				want, wantDecisions, _ := run(alone)
				got, decisions, evaluatedAlone := run(group)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s (-alone +batch):\n%s", operation, diff)
				}
				if diff := cmp.Diff(wantDecisions, decisions); diff != "" {
					t.Errorf("%s: decisions (-alone +batch):\n%s", operation, diff)
				}
				wantAlone := tt.alone || tt.ratchets && operation == admission.Update
				if (evaluatedAlone > 0) != wantAlone {
					t.Errorf("%s: %d evaluations alone, want any: %t", operation, evaluatedAlone, wantAlone)
				}
				switch wantDecisions["p"] {
				case DecisionDeny:
					denied++
				case DecisionError:
					failed++
				}
			}
		})
	}
	if denied < 15 || failed < 15 {
		t.Errorf("%d denials and %d errors: the cases have lost their variety", denied, failed)
	}
}

// TestLaterPoliciesStayWithinLimits: params and a namespace at the edges of sizes never lead to an evaluation in the
// batch that could exceed a limit, whatever was evaluated before.
func TestLaterPoliciesStayWithinLimits(t *testing.T) {
	contains := ofConfigMaps + "validations: [{expression: '!params.data.a.contains(params.data.a + \"b\")'}]\n"
	words := ofConfigMaps + "validations: [{expression: 'params.data.all(k, v, k != v)'}]\n"
	long := "variables: [{name: x, expression: 'object.metadata.name + \"" + strings.Repeat("x", 200) + "\"'}]\n" +
		"validations: [{expression: 'variables.x != params.data.a'}]\n"
	longAlone := strings.ReplaceAll(long, "params.data.a", `"a"`)
	object := func(name string, data map[string]any) runtime.Object {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name, "namespace": "shop"}, "data": data,
		}}
	}
	text := func(n int) map[string]any { return map[string]any{"a": strings.Repeat("a", n)} }
	many := func(n int) map[string]any {
		out := map[string]any{}
		for i := range n {
			out[fmt.Sprintf("k%d", i)] = "v"
		}
		return out
	}
	by := func(name string) string { return bound("{name: b, paramRef: {name: " + name + "}}") }
	namespace := func(n int) *corev1.Namespace {
		labels := map[string]string{"a": strings.Repeat("a", n)}
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Annotations: labels}}
	}
	tests := map[string]struct {
		specs     map[string]string
		params    map[string]map[string]any
		namespace *corev1.Namespace
		alone     int
		want      map[string]Decision
	}{
		"a short text": {specs: map[string]string{"p": contains + by("x")}, params: map[string]map[string]any{"x": text(128)}},
		"a long text":  {specs: map[string]string{"p": contains + by("x")}, params: map[string]map[string]any{"x": text(8193)}, alone: 1},
		"beyond the limit": {
			specs: map[string]string{"p": contains + by("x")}, params: map[string]map[string]any{"x": text(65536)}, alone: 1,
			want: map[string]Decision{"p": DecisionError},
		},
		"beyond all sizes": {
			specs: map[string]string{"p": contains + by("x")}, params: map[string]map[string]any{"x": text(70000)}, alone: 1,
			want: map[string]Decision{"p": DecisionError},
		},
		"many keys":       {specs: map[string]string{"p": words + by("x")}, params: map[string]map[string]any{"x": many(1000)}},
		"more than sizes": {specs: map[string]string{"p": words + by("x")}, params: map[string]map[string]any{"x": many(1025)}, alone: 1},
		"too many keys":   {specs: map[string]string{"p": words + by("x")}, params: map[string]map[string]any{"x": many(5000)}, alone: 1},
		"a variable within the size of a param only": { // and for it, the batch has evaluated it before
			specs:  map[string]string{"a": long + ofConfigMaps + by("large"), "b": long + ofConfigMaps + by("small"), "c": longAlone},
			params: map[string]map[string]any{"large": text(300), "small": text(3)},
			alone:  2,
		},
		"the same in another order": {
			specs: map[string]string{
				"a": long + ofConfigMaps + by("small"),
				"b": long + ofConfigMaps + by("large"),
				"c": long + ofConfigMaps + by("large"),
			},
			params: map[string]map[string]any{"large": text(300), "small": text(3)},
			alone:  1,
		},
		"a namespace": {
			specs:     map[string]string{"p": "validations: [{expression: '!namespaceObject.metadata.annotations.a.contains(\"b\")'}]"},
			namespace: namespace(8000),
		},
		"a long text of a namespace": {
			specs: map[string]string{
				"p": "validations: [{expression: '!namespaceObject.metadata.annotations.a" +
					".contains(namespaceObject.metadata.annotations.a + \"b\")'}]",
			},
			namespace: namespace(65536),
			alone:     1,
			want:      map[string]Decision{"p": DecisionError},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			decisions, alone := map[string]Decision{}, 0
			host := testWorld.host()
			host.Observe = observeInto(decisions)
			host.Evaluated = func(_, n int) { alone = n }
			host.Params = paramsFunc(func(ref *admissionregistrationv1.ParamRef) []runtime.Object {
				return []runtime.Object{object(ref.Name, tt.params[ref.Name])}
			})
			if tt.namespace != nil {
				host.Namespaces = namespaceMap{"shop": tt.namespace}
			}
			evaluate(t, groupFrom(t, tt.specs), podInput(t, admission.Create).review(t), host)
			want := tt.want
			if want == nil {
				want = map[string]Decision{}
				for policy := range tt.specs {
					want[policy] = DecisionAllow
				}
			}
			if diff := cmp.Diff(want, decisions); diff != "" {
				t.Errorf("decisions (-want +got):\n%s", diff)
			}
			if alone != tt.alone {
				t.Errorf("%d policies were evaluated alone, want %d", alone, tt.alone)
			}
		})
	}
}

// TestParamsShareValues: what does not read params is evaluated once for all of them, and what reads them once for each.
func TestParamsShareValues(t *testing.T) {
	const spec = ofConfigMaps + "variables: [{name: count, expression: 'object.spec.containers.size()'}]\n" +
		"validations: [{expression: 'variables.count == 2'}, {expression: 'params.data.max != \"9\"'}]\n"
	group := groupFrom(t, map[string]string{
		"a": spec + bound("{name: b, paramRef: {selector: {}}}"),
		"b": spec + bound("{name: b, paramRef: {name: third}}"),
		"c": spec + bound("{name: b, paramRef: {name: third}}"),
	})
	runs := []*int{new(int), new(int)}
	var counted []*uncounted.Expression // of all policies, because they are equal
	for i, u := range group.policies[0].quick.Validations {
		counted = append(counted, (&counting{runs: runs[i]}).of(u))
	}
	for _, p := range group.policies {
		p.quick.Validations = counted
	}
	params := map[string]runtime.Object{}
	for _, name := range []string{"first", "second", "third"} {
		params[name] = &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{"max": name}}}
	}
	host := testWorld.host()
	host.Params = paramsFunc(func(ref *admissionregistrationv1.ParamRef) []runtime.Object {
		if ref.Name != "" {
			return []runtime.Object{params[ref.Name]}
		}
		return []runtime.Object{params["first"], params["second"], params["third"]}
	})
	if resp := evaluate(t, regroup(group), podInput(t, admission.Create).review(t), host); !resp.Allowed {
		t.Fatal(resp.Result)
	}
	// Policy a reads first, second and third; b and c read the last of them.
	if *runs[0] != 1 || *runs[1] != 3 {
		t.Errorf("the validations ran %d and %d times, want 1 and 3", *runs[0], *runs[1])
	}
}
