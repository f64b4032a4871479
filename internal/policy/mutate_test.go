package policy

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

func mutate(tb testing.TB, g *Group, raw *admissionv1.AdmissionRequest, host Environment) *admissionv1.AdmissionResponse {
	tb.Helper()
	resp, err := g.Mutate(tb.Context(), raw, host)
	if err != nil {
		tb.Fatal(err)
	}
	return resp
}

// TestSameMutationAsKubernetesForSeveralPolicies: each sees what those before
// it made, in the order of their names.
func TestSameMutationAsKubernetesForSeveralPolicies(t *testing.T) {
	tests := map[string]struct {
		specs []string
		want  string
	}{
		"in a row": {
			specs: []string{
				mutations(label("a", `"1"`)), mutations(label("a", `object.metadata.labels.a + "2"`)),
				mutations(patching(op("add", "/metadata/labels/b", `object.metadata.labels.a + "3"`))),
			},
			want: `"b":"123"`,
		},
		"conditions see the one before": {
			specs: []string{
				mutations(label("a", `"1"`)),
				"matchConditions: [{name: c, expression: 'has(object.metadata.labels.a)'}]\n" + mutations(label("b", `"2"`)),
				"matchConditions: [{name: c, expression: '!has(object.metadata.labels.a)'}]\n" + mutations(label("c", `"3"`)),
			},
			want: `"b":"2"`,
		},
		"selectors do not": {
			specs: []string{
				mutations(label("team", `"other"`)),
				mutations(label("b", `"2"`)) + bound("{name: b, matchResources: {objectSelector: {matchLabels: {team: shop}}}}"),
				mutations(label("c", `"3"`)) + bound("{name: b, matchResources: {objectSelector: {matchLabels: {team: other}}}}"),
			},
			want: `"b":"2"`,
		},
		"the first fails": {
			specs: []string{mutations(label("a", "string(object.nope)")), mutations(label("b", `"2"`))},
			want:  "403 Invalid: WebhookPolicy 'p0' with binding 'b' denied request: expression",
		},
		"the first fails and is ignored": {
			specs: []string{
				mutations(label("x", `"kept"`), label("a", "string(object.nope)")) + "failurePolicy: Ignore",
				mutations(label("b", `object.metadata.labels.x`)),
			},
			want: `"b":"kept"`,
		},
		"the last is not configured": {
			specs: []string{
				mutations(label("a", "string(object.nope)")),
				mutations(label("b", `"2"`)) + bound("{name: b, matchResources: {objectSelector: {matchLabels: {'a b': c}}}}"),
			},
			want: "WebhookPolicy 'p1' with binding 'b' denied request: failed to configure binding",
		},
		"one undoes another": {
			specs: []string{mutations(label("a", `"1"`)), mutations(patching(op("remove", "/metadata/labels/a", "")))},
			want:  "unchanged",
		},
	}
	inputs := mutableInputs(t)
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var policies []*v1alpha1.WebhookPolicy
			for i, spec := range tc.specs {
				policies = append(policies, withActions(policyFrom(t, fmt.Sprintf("p%d", i), spec), actionSets["deny"]))
			}
			oracle := newMutationOracle(policies, testWorld)
			slices.Reverse(policies)
			group := groupOf(t, policies)
			for name, in := range inputs {
				t.Run(name, func(t *testing.T) {
					got := compareMutation(t, oracle, group, in)
					if name == "create pod" {
						checkMutation(t, got, in, tc.want)
					}
				})
			}
		})
	}
}

// mutation is one at random; most succeed on some of the requests.
func (a author) mutation(variables []admissionregistrationv1.Variable) admissionregistrationv1.Mutation {
	text := a.text(1)
	if len(variables) > 0 && a.IntN(3) == 0 {
		text = "string(variables." + pick(a, variables...).Name + ")"
	}
	if a.IntN(2) == 0 {
		expression := pick(a,
			`Object{metadata: Object.metadata{labels: {"a": `+text+`}}}`,
			`Object{metadata: Object.metadata{annotations: {`+a.text(0)+`: `+text+`}}}`,
			`Object{metadata: Object.metadata{?labels: `+a.truth(1)+` ? optional.of({"b": `+text+`}) : optional.none()}}`,
			`Object{spec: Object.spec{terminationGracePeriodSeconds: `+a.number(1)+`}}`,
			`Object{spec: Object.spec{containers: object.spec.containers.map(c, Object.spec.containers{name: c.name, image: `+text+`})}}`,
			`Object{spec: Object.spec{containers: [Object.spec.containers{name: "mesh", image: `+text+
				`, env: [Object.spec.containers.env{name: "a", value: "b"}]}]}}`,
			`Object{spec: Object.spec{replicas: `+a.number(1)+`}}`,
			`Object{spec: Object.spec{hostNetwork: `+a.truth(1)+`}}`,
			`Object{spec: Object.spec{nodeSelector: {"a": `+text+`}}}`,
			`Object{spec: Object.spec{count: `+a.number(1)+`}}`,
			`Object{spec: Object.spec{parts: [Object.spec.parts{name: "a", size: 1, color: `+text+`}]}}`,
		)
		return admissionregistrationv1.Mutation{
			PatchType:          admissionregistrationv1.PatchTypeApplyConfiguration,
			ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: expression},
		}
	}
	path := pick(a, "/metadata/labels/a", "/metadata/labels/team", "/metadata/labels", "/metadata/annotations/x",
		"/spec/containers/0/image", "/spec/containers/-", "/spec/containers/1", "/spec/hostNetwork", "/spec/count",
		"/spec/open", "/spec/terminationGracePeriodSeconds", "/spec/nope/x")
	var operations []string
	for range 1 + a.IntN(3) {
		kind := pick(a, "add", "add", "replace", "remove", "test")
		value := map[string]string{
			"/metadata/labels":   `{"a": ` + text + `}`,
			"/spec/containers/-": `Object.spec.containers{name: "new", image: ` + text + `}`,
			"/spec/containers/1": `Object.spec.containers{name: "new"}`,
			"/spec/hostNetwork":  a.truth(1), "/spec/count": a.number(1),
			"/spec/open": `{"a": dyn(` + a.number(1) + `), "b": dyn(` + text +
				`), "c": dyn([dyn(true), dyn(1.5)])}`,
			"/spec/terminationGracePeriodSeconds": a.number(1),
		}[path]
		if value == "" {
			value = text
		}
		if kind == "remove" {
			value = ""
		}
		operations = append(operations, op(kind, path, value))
	}
	return admissionregistrationv1.Mutation{
		PatchType: admissionregistrationv1.PatchTypeJSONPatch,
		JSONPatch: &admissionregistrationv1.JSONPatch{Expression: "[" + strings.Join(operations, ", ") + "]"},
	}
}

func (a author) mutating(name string) *v1alpha1.WebhookPolicy {
	for {
		p := a.policy(name)
		p.Spec.Validations, p.Spec.AuditAnnotations = nil, nil
		a.params, a.asks = p.Spec.ParamKind != nil, a.IntN(3) == 0
		for range 1 + a.IntN(3) {
			p.Spec.Mutations = append(p.Spec.Mutations, a.mutation(p.Spec.Variables))
		}
		if _, errs := sharedCompiler.Compile(p); len(errs) == 0 {
			return p
		}
	}
}

// readsKindOfParam finds the one thing that the native engine shows to
// validations and not to mutations: the kind of params of a built-in kind.
func readsKindOfParam(p *v1alpha1.WebhookPolicy) bool {
	data, err := json.Marshal(p.Spec)
	return err != nil || (p.Spec.ParamKind != nil && strings.Contains(string(data), "params.kind"))
}

// TestSameMutationAsKubernetesForGeneratedPolicies compares with the native
// engine over mutations written at random.
func TestSameMutationAsKubernetesForGeneratedPolicies(t *testing.T) {
	t.Logf("repeat with -seed=%d", *seed)
	a := author{Rand: rand.New(rand.NewPCG(*seed, 1))}
	inputs := mutableInputs(t)
	counts := map[string]int{}
	for i := range *randomPolicies {
		var policies []*v1alpha1.WebhookPolicy
		for j := 0; j <= a.IntN(3); {
			if p := a.mutating(fmt.Sprintf("p%d", j)); !readsKindOfParam(p) {
				policies = append(policies, p)
				j++
			}
		}
		oracle, group := newMutationOracle(policies, testWorld), groupOf(t, policies)
		for _, name := range slices.Sorted(maps.Keys(inputs)) {
			before := t.Failed()
			got, between := compareMutations(t, oracle, group, inputs[name])
			if between {
				counts["differ between mutations"]++
			}
			if t.Failed() && !before {
				t.Errorf("policies %d of seed %d, request %q", i, *seed, name)
				for _, p := range policies {
					text, _ := json.Marshal(p.Spec)
					t.Logf("%s", text)
				}
			}
			switch {
			case !got.Allowed:
				counts[fmt.Sprint(got.Code)]++
			case inputs[name].object == nil || cmp.Equal(got.Object, content(t, inputs[name].object)):
				counts["unchanged"]++
			default:
				counts["changed"]++
			}
		}
	}
	t.Logf("%v", counts)
	if few := *randomPolicies * len(inputs) / 20; *randomPolicies > 50 && (counts["changed"] < few ||
		counts["unchanged"] < few || counts["403"] < few) {
		t.Errorf("fewer than %d of some kind of answer: the policies have lost their variety", few)
	}
	if many := *randomPolicies * len(inputs) / 20; *randomPolicies > 50 && counts["differ between mutations"] > many {
		t.Errorf("%d answers differ between mutations, which are to be rare", counts["differ between mutations"])
	}
}

// TestObjectBetweenMutationsIsTheNativeOne: what a mutation empties is gone for
// the next one, where the API server holds a Go value that leaves it out.
func TestObjectBetweenMutationsIsTheNativeOne(t *testing.T) {
	p := withActions(policyFrom(t, "p",
		mutations(applying("Object{spec: Object.spec{hostNetwork: false}}"),
			label("set", "string(has(object.spec.hostNetwork))"))), actionSets["deny"])
	policies := []*v1alpha1.WebhookPolicy{p}
	in := podInput(t, admission.Create)
	checkMutation(t, newMutationOracle(policies, testWorld).decide(t, in), in, `"set":"false"`)
	checkMutation(t, mutateOurs(t, groupOf(t, policies), in, testWorld.host()), in, `"set":"false"`)
}

// TestMutationOfAParamsKindDiffers: the native engine holds params of built-in
// kinds without apiVersion and kind. It adds them for validations and forgets
// to for mutations; here they are always there.
func TestMutationOfAParamsKindDiffers(t *testing.T) {
	p := policyFrom(t, "p", ofConfigMaps+mutations(label("kind", "params.kind"))+
		bound("{name: b, paramRef: {name: first, parameterNotFoundAction: Deny}}"))
	in := podInput(t, admission.Create)
	if got := newMutationOracle([]*v1alpha1.WebhookPolicy{p}, testWorld).decide(t, in); !strings.Contains(got.String(), "no such key: kind") {
		t.Errorf("native answer = %s", got)
	}
	if got := mutateOurs(t, groupOf(t, []*v1alpha1.WebhookPolicy{p}), in,
		testWorld.host()); !strings.Contains(got.String(), `"kind":"ConfigMap"`) {
		t.Errorf("our answer = %s", got)
	}
}

// TestServerErrorsOfMutationsDiffer: what the native engine refuses with a
// server error, whatever failurePolicy says, is an error of the policy here.
func TestServerErrorsOfMutationsDiffer(t *testing.T) {
	const denied = "403 Invalid: WebhookPolicy 'p' with binding 'b' denied request: "
	tests := map[string]struct {
		mutation   string
		on         string
		native     string
		want       string
		wantIgnore string
	}{
		"unknown field": {
			patching(op("add", "/spec/replicsa", "1")), "create pod",
			`500 InternalError: Internal error occurred: strict decoding error: unknown field "spec.replicsa"`,
			denied + `the result is no valid Pod: strict decoding error: unknown field "spec.replicsa"`, "unchanged",
		},
		"unknown field in a list": {
			patching(op("add", "/spec/containers/1/imgae", `"x"`)), "create pod",
			`500 InternalError: Internal error occurred: strict decoding error: unknown field "spec.containers[1].imgae"`,
			denied + `the result is no valid Pod: strict decoding error: unknown field "spec.containers[1].imgae"`, "unchanged",
		},
		"wrong type": {
			patching(op("add", "/metadata/labels/a", "1")), "create pod",
			"500 InternalError: Internal error occurred: json: cannot unmarshal number into Go struct field " +
				"ObjectMeta.metadata.labels of type string",
			denied + "the result is no valid Pod: the value of metadata.labels.a, a number, does not fit its field, which " +
				"takes a string", "unchanged",
		},
		"wrong type of a bool": {
			patching(op("add", "/spec/hostNetwork", `dyn("true")`)), "create pod",
			"500 InternalError: Internal error occurred: json: cannot unmarshal string into Go struct field PodSpec.spec.hostNetwork of type bool",
			denied + "the result is no valid Pod: the value of spec.hostNetwork, a string, does not fit its field, which takes " +
				"a boolean", "unchanged",
		},
		"wrong type of a quantity": {
			patching(op("add", "/spec/containers/0/resources", `{"limits": {"cpu": true}}`)), "create pod",
			"500 InternalError: Internal error occurred: ",
			denied + "the result is no valid Pod: the value of spec.containers[0].resources.limits.cpu, a boolean, does not " +
				"fit its field, which takes a number or a string", "unchanged",
		},
		"nothing in place of the object": {
			patching(op("replace", "", "{}")), "create pod",
			`allowed {"apiVersion":"v1","kind":"Pod","metadata":{}`, // the kind comes from the Go type
			denied + "the result has no kind: the operations of jsonPatch.expression must keep apiVersion and kind", "unchanged",
		},
		"quantity that is none": {
			applying(`Object{spec: Object.spec{containers: [` + firstContainer +
				`resources: Object.spec.containers.resources{limits: {"cpu": "lots"}}}]}}`), "create pod",
			"quantities must match the regular expression",
			denied + "the result is no valid Pod: the value of spec.containers[0].resources.limits.cpu, a string, does not fit " +
				"its field: quantities must match the regular expression", "unchanged",
		},
		"test of a list with null": {
			patching(op("test", "/spec/mixed", `[dyn(1), dyn(2.5), dyn("x"), dyn(null), dyn(true), dyn({"a": 1})]`)), "custom resource",
			"500 InternalError: Internal error occurred: panic: ",
			denied + "internal error: the evaluation panicked", "unchanged",
		},
		"unknown schema": {
			label("a", `"b"`), "unknown kind",
			"503 ServiceUnavailable: Resource kind example.com/v1, Kind=Gadget not found. There can be a delay",
			denied + "the schema of example.com/v1, Kind=Gadget is not known: a new kind takes a moment to appear", "unchanged",
		},
	}
	inputs := mutableInputs(t)
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			in := inputs[tc.on]
			p := withActions(policyFrom(t, "p", mutations(tc.mutation)), actionSets["deny"])
			policies := []*v1alpha1.WebhookPolicy{p}
			if got := newMutationOracle(policies, testWorld).decide(t, in).String(); !strings.Contains(got, tc.native) {
				t.Errorf("native answer = %s, want %s", got, tc.native)
			}
			if got := mutateOurs(t, groupOf(t, policies), in, testWorld.host()).String(); !strings.HasPrefix(got, tc.want) {
				t.Errorf("our answer = %s, want %s", got, tc.want)
			}
			policies[0] = variant(p, p.Spec.Bindings, admissionregistrationv1.Ignore)
			checkMutation(t, mutateOurs(t, groupOf(t, policies), in, testWorld.host()), in, tc.wantIgnore)
		})
	}
}

// TestSeveralMutationsFail: the message names each, where the native engine's
// has the first alone.
func TestSeveralMutationsFail(t *testing.T) {
	group := groupFrom(t, map[string]string{
		"p": mutations(label("a", "string(object.nope)"), label("b", `"2"`),
			patching(op("remove", "/metadata/labels/none", ""))),
	})
	resp := mutate(t, group, podInput(t, admission.Create).review(t), testWorld.host())
	const want = "WebhookPolicy 'p' denied request: spec.mutations[0]: expression 'Object{metadata: " +
		"Object.metadata{labels: {\"a\": string(object.nope)}}}' resulted in error: no such key: nope\n" +
		"spec.mutations[2]: JSON Patch: error in remove for path: '/metadata/labels/none': Unable to remove nonexistent key: none: missing value"
	if resp.Allowed || resp.Result.Message != want || resp.Result.Code != 403 || resp.Result.Reason != metav1.StatusReasonInvalid {
		t.Errorf("result = %+v, want %s", resp.Result, want)
	}
}

// TestFieldsThatWereUnknownBefore: an API server may be newer than the Go types
// here. What it sent is left alone, wherever in its list it then stands.
func TestFieldsThatWereUnknownBefore(t *testing.T) {
	raw := podInput(t, admission.Create).review(t)
	raw.Object.Raw = []byte(strings.NewReplacer(`"terminationGracePeriodSeconds":30`,
		`"terminationGracePeriodSeconds":30,"newField":{"a":1}`, `"name":"side"`,
		`"name":"side","newField":"x"`).Replace(string(raw.Object.Raw)))
	if strings.Count(string(raw.Object.Raw), "newField") != 2 {
		t.Fatal("the fields are not there")
	}
	tests := map[string]struct {
		mutation string
		want     string // part of the message; empty if allowed
	}{
		"label by a patch":      {patching(op("add", "/metadata/labels/a", `"b"`)), ""},
		"container before it":   {patching(op("add", "/spec/containers/0", `Object.spec.containers{name: "first"}`)), ""},
		"another unknown field": {patching(op("add", "/spec/containers/0/newFeild", `"b"`)), `unknown field "spec.containers[0].newFeild"`},
		"wrong type":            {patching(op("add", "/spec/hostname", `1`)), `a number, does not fit its field, which takes a string`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			resp := mutate(t, groupFrom(t, map[string]string{"p": mutations(tc.mutation)}), raw, testWorld.host())
			switch {
			case resp.Allowed != (tc.want == ""):
				t.Errorf("allowed = %t: %+v", resp.Allowed, resp.Result)
			case !resp.Allowed && (!strings.Contains(resp.Result.Message, tc.want) || strings.Contains(resp.Result.Message, "newField")):
				t.Errorf("message = %q, want %q", resp.Result.Message, tc.want)
			}
		})
	}
}

func TestMutationsThatAreNotIdempotent(t *testing.T) {
	appending := patching(op("add", "/spec/containers/-", `Object.spec.containers{name: "mesh"}`))
	tests := map[string]struct {
		spec string
		want []int // the mutations
	}{
		"appending patch": {spec: mutations(appending), want: []int{0}},
		"appending, once": {
			spec: "matchConditions: [{name: c, expression: 'object.spec.containers.size() < 3'}]\n" + mutations(appending),
		},
		"apply": {
			spec: mutations(applying(`Object{spec: Object.spec{containers: [Object.spec.containers{name: "mesh"}]}}`)),
		},
		"counting": {
			spec: mutations(label("n", `string(object.metadata.labels.size())`),
				label("m", `string(object.metadata.labels.size())`)),
			want: []int{0, 1},
		},
		"suffix": {spec: mutations(label("team", `object.metadata.labels.team + "x"`)), want: []int{0}},
		"there and back": {
			spec: mutations(label("a", `has(object.metadata.labels.a) && object.metadata.labels.a == "1" ? "2" : "1"`)),
			want: []int{0},
		},
		"one undoes another":       {spec: mutations(label("a", `"1"`), label("a", `"2"`))},
		"fails the second time":    {spec: mutations(patching(op("remove", "/metadata/labels/team", "")))},
		"does nothing":             {spec: mutations(label("team", `"shop"`))},
		"appending, other changes": {spec: mutations(label("a", `"b"`), appending), want: []int{1}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := policyFrom(t, "p", tc.spec)
			p.UID, p.Generation = "u", 3
			group := groupOf(t, []*v1alpha1.WebhookPolicy{p})
			raw := podInput(t, admission.Create).review(t)
			host := testWorld.host()
			plain := mutate(t, group, raw, host)
			var found, want []Repeat
			checks, observed := 0, 0
			host.Recheck = &Recheck{
				First: 2, Every: 3,
				Later: func(check func(context.Context)) { checks++; check(t.Context()) },
				Found: func(r Repeat) { found = append(found, r) },
			}
			host.Observe = func(string, admissionv1.Operation, Decision, time.Duration) { observed++ }
			for range 7 {
				if diff := cmp.Diff(plain, mutate(t, group, raw, host)); diff != "" {
					t.Errorf("the answer changed with the check:\n%s", diff)
				}
			}
			due := 4 // the first two, the third and the sixth
			if name == "does nothing" {
				due = 0
			}
			if tc.want != nil {
				want = slices.Repeat([]Repeat{{Policy: "p", UID: "u", Generation: 3, Mutations: tc.want}}, due)
			}
			if diff := cmp.Diff(want, found); diff != "" || checks != due || observed != 7 {
				t.Errorf("%d checks in 7 changes, want %d; observed %d times; found (-want +got):\n%s", checks, due, observed, diff)
			}
		})
	}
}

// TestRechecksHaveTheirOwnDeadline: a check runs after its request has ended.
func TestRechecksHaveTheirOwnDeadline(t *testing.T) {
	for name, want := range map[string][]string{"time left": {"first", "third"}, "no time left": nil} {
		t.Run(name, func(t *testing.T) {
			group := groupFrom(t, map[string]string{
				"first":  mutations(label("team", `object.metadata.labels.team + "x"`)),
				"second": mutations(label("a", "object.metadata.labels.team")),
				"third":  mutations(label("b", `object.metadata.labels.?b.orValue("") + object.metadata.labels.team`)),
			})
			request, over := context.WithCancel(t.Context())
			var checks []func(context.Context)
			var found []string
			host := testWorld.host()
			host.Recheck = &Recheck{
				First: 1, Every: 100,
				Later: func(check func(context.Context)) { checks = append(checks, check) },
				Found: func(r Repeat) { found = append(found, r.Policy) },
			}
			if _, err := group.Mutate(request, podInput(t, admission.Create).review(t), host); err != nil {
				t.Fatal(err)
			}
			over()
			ctx := t.Context()
			if name == "no time left" {
				ctx = request
			}
			for _, check := range checks {
				check(ctx)
			}
			if diff := cmp.Diff(want, found); diff != "" || len(checks) != 1 {
				t.Errorf("%d checks found (-want +got):\n%s", len(checks), diff)
			}
		})
	}
}

// TestNothingIsEvaluatedOnceTheTimeIsOver: a request that was not evaluated in time is
// not allowed.
func TestNothingIsEvaluatedOnceTheTimeIsOver(t *testing.T) {
	const message = "not evaluated: context deadline exceeded"
	tests := map[string]struct {
		specs map[string]string
		want  []string // the denials; none if allowed
		warns string
	}{
		"Fail": {
			specs: map[string]string{"p": yes + mutations(label("a", `"b"`))},
			want:  []string{"WebhookPolicy 'p' denied request: " + message},
		},
		"Ignore": {specs: map[string]string{"p": yes + mutations(label("a", `"b"`)) + "failurePolicy: Ignore"}},
		"both": {
			specs: map[string]string{
				"p": yes + mutations(label("a", `"b"`)) + "failurePolicy: Ignore",
				"q": yes + mutations(label("a", `"b"`)),
			},
			want: []string{"WebhookPolicy 'q' denied request: " + message},
		},
		"with params": {
			specs: map[string]string{
				"p": ofConfigMaps + tooFew + mutations(label("a", "params.data.max")) +
					bound("{name: b, paramRef: {selector: {}, parameterNotFoundAction: Deny}}"),
			},
			want: []string{"WebhookPolicy 'p' with binding 'b' denied request: " + message},
		},
		"not for this one": {
			specs: map[string]string{
				"p": yes + mutations(label("a", `"b"`)) +
					bound("{name: b, matchResources: {objectSelector: {matchLabels: {team: other}}}}"),
			},
		},
		"reads a namespace": {
			specs: map[string]string{
				"p": "validations: [{expression: 'namespaceObject != null'}]\n" + mutations(label("a", `"b"`)),
			},
			want: []string{"WebhookPolicy 'p' denied request: " + message},
		},
	}
	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	raw := podInput(t, admission.Create).review(t)
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			for phase, call := range map[string]func(*Group) (*admissionv1.AdmissionResponse, error){
				"mutate":   func(g *Group) (*admissionv1.AdmissionResponse, error) { return g.Mutate(ctx, raw, testWorld.host()) },
				"validate": func(g *Group) (*admissionv1.AdmissionResponse, error) { return g.Validate(ctx, raw, testWorld.host()) },
			} {
				resp, err := call(groupFrom(t, tc.specs))
				if err != nil {
					t.Fatal(err)
				}
				if resp.Allowed != (len(tc.want) == 0) || len(resp.Patch) > 0 {
					t.Errorf("%s: allowed = %t, patch %s", phase, resp.Allowed, resp.Patch)
				} else if !resp.Allowed && resp.Result.Message != strings.Join(tc.want, "\n") {
					t.Errorf("%s: message = %q, want %q", phase, resp.Result.Message, tc.want)
				}
			}
		})
	}
	t.Run("Warn", func(t *testing.T) {
		resp, err := groupFrom(t, map[string]string{"p": yes + bound("{name: b, validationActions: [Warn]}")}).Validate(ctx,
			raw, testWorld.host())
		if err != nil || !resp.Allowed ||
			!slices.Equal(resp.Warnings, []string{"Validation failed for WebhookPolicy 'p' with binding 'b': " + message}) {
			t.Errorf("answer = %+v, %v", resp, err)
		}
	})
}

// TestTheTimeRunsOutBetweenPolicies: those before it keep their answers, and so
// do those that need no evaluation of their own.
func TestTheTimeRunsOutBetweenPolicies(t *testing.T) {
	group := groupFrom(t, map[string]string{
		"a": "validations: [{expression: 'namespaceObject == null', message: first}]",
		"b": "validations: [{expression: 'namespaceObject != null'}]", "c": yes,
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	host := testWorld.host()
	host.Observe = func(policy string, _ admissionv1.Operation, _ Decision, _ time.Duration) {
		if policy == "a" {
			cancel()
		}
	}
	resp, err := group.Validate(ctx, podInput(t, admission.Create).review(t), host)
	if err != nil {
		t.Fatal(err)
	}
	if want := "WebhookPolicy 'a' denied request: first\nWebhookPolicy 'b' denied request: not evaluated: " +
		"context canceled"; resp.Allowed || resp.Result.Message != want {
		t.Errorf("result = %+v, want %s", resp.Result, want)
	}
}

func TestPanickingMutationLeavesTheObject(t *testing.T) {
	for failurePolicy, want := range map[string]bool{"Fail": false, "Ignore": true} {
		group := groupFrom(t, map[string]string{
			"a": mutations(label("a", `"1"`)),
			"b": mutations(label("b", "namespaceObject.metadata.name")) + "failurePolicy: " + failurePolicy,
			"c": mutations(label("c", `object.metadata.labels.a`)),
		})
		host := testWorld.host()
		host.Namespaces = nil
		panicked := ""
		host.Panicked = func(p PanicReport) { panicked += p.Policy }
		resp := mutate(t, group, podInput(t, admission.Create).review(t), host)
		if resp.Allowed != want || panicked != "b" {
			t.Errorf("%s: allowed = %t, panicked %q", failurePolicy, resp.Allowed, panicked)
		}
		if patch := `[{"op":"add","path":"/metadata/labels/a","value":"1"},{"op":"add","path":"/metadata/labels/c",` +
			`"value":"1"}]`; want && string(resp.Patch) != patch {
			t.Errorf("patch = %s, want %s", resp.Patch, patch)
		}
	}
}
