package policy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/ostiary/ostiary/internal/celengine/uncounted"
	"github.com/ostiary/ostiary/internal/unstructuredjson"
)

// regroup makes a group anew, after its policies have been changed.
func regroup(g *Group) *Group {
	return NewGroup(g.policies)
}

// counting counts how often a program runs in a batch.
type counting struct {
	interpreter.InterpretableV2
	runs   *int
	panics bool
}

func (c *counting) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	*c.runs++
	if c.panics {
		panic("of the test")
	}
	return c.InterpretableV2.Exec(frame)
}

func (c *counting) of(u *uncounted.Expression) *uncounted.Expression {
	counted := *u
	c.InterpretableV2, counted.Program = u.Program, c
	return &counted
}

// TestBatchUsesOnlyTrue: the validator decides on every other result.
func TestBatchUsesOnlyTrue(t *testing.T) {
	tests := map[string]struct {
		specs     map[string]string
		panics    string // the policy whose program panics
		decisions map[string]Decision
		want      string
		wantRuns  map[string]int // in the batch
	}{
		"all true": {
			specs:     map[string]string{"a": "validations: [{expression: 'true'}]", "b": "validations: [{expression: 'true'}]"},
			decisions: map[string]Decision{"a": DecisionAllow, "b": DecisionAllow}, wantRuns: map[string]int{"a": 1, "b": 1},
		},
		"one false, one in error": {
			specs:     map[string]string{"a": "validations: [{expression: 'true'}]", "b": "validations: [{expression: 'false', message: m}]", "c": "validations: [{expression: '1 / int(object.spec.containers.size() - 2) == 1'}]\nfailurePolicy: Ignore"},
			decisions: map[string]Decision{"a": DecisionAllow, "b": DecisionDeny, "c": DecisionError},
			want:      "WebhookPolicy 'b' denied request: m", wantRuns: map[string]int{"a": 1, "b": 1, "c": 1},
		},
		"one panics": {
			specs:     map[string]string{"a": "validations: [{expression: 'true'}]", "b": "validations: [{expression: 'true'}]", "c": "validations: [{expression: 'false', message: m}]"},
			panics:    "b",
			decisions: map[string]Decision{"a": DecisionAllow, "b": DecisionAllow, "c": DecisionDeny},
			want:      "WebhookPolicy 'c' denied request: m", wantRuns: map[string]int{"a": 1, "b": 1, "c": 1},
		},
		"match conditions": {
			specs: map[string]string{
				"a": "{matchConditions: [{name: n, expression: 'false'}], validations: [{expression: 'false', message: m}]}",
				"b": "{matchConditions: [{name: n, expression: 'true'}], validations: [{expression: 'true', message: m}]}",
				"c": "{matchConditions: [{name: n, expression: 'true'}], validations: [{expression: 'false', message: m}]}",
				"d": "{matchConditions: [{name: n, expression: '1 / int(object.spec.containers.size() - 2) == 1'}], validations: [{expression: 'true', message: m}]}",
			},
			decisions: map[string]Decision{"a": DecisionSkip, "b": DecisionAllow, "c": DecisionDeny, "d": DecisionError},
			want: "WebhookPolicy 'c' denied request: m\nWebhookPolicy 'd' denied request: " +
				"expression '1 / int(object.spec.containers.size() - 2) == 1' resulted in error: division by zero",
			wantRuns: map[string]int{"a": 0, "b": 1, "c": 1, "d": 0},
		},
		"variables": {
			specs: map[string]string{
				"a": "{variables: [{name: x, expression: 'object.spec.containers.size()'}, {name: z, expression: 'variables.x + 1'}], validations: [{expression: 'variables.z == 3'}]}",
				"b": "{variables: [{name: x, expression: 'object.spec.containers.size() + 1'}, {name: z, expression: 'variables.x + 1'}], validations: [{expression: 'variables.z == 4'}]}",
				"c": "{variables: [{name: z, expression: 'object.spec.containers.size()'}, {name: x, expression: 'variables.z + 1'}], validations: [{expression: 'variables.x == 3 && variables.z == 2'}]}",
				"d": "{variables: [{name: x, expression: '1 / 0'}], validations: [{expression: 'true || variables.x == 1'}]}",
				"e": "{variables: [{name: x, expression: '1 / 0'}], validations: [{expression: 'variables.x == 1', message: m}]}",
			},
			decisions: map[string]Decision{"a": DecisionAllow, "b": DecisionAllow, "c": DecisionAllow, "d": DecisionAllow, "e": DecisionError},
			want: "WebhookPolicy 'e' denied request: expression 'variables.x == 1' resulted in error: " +
				"composited variable \"x\" fails to evaluate: division by zero",
			wantRuns: map[string]int{"a": 1, "b": 1, "c": 1, "d": 1, "e": 1},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			group := groupFrom(t, tc.specs)
			runs := map[string]*int{}
			for _, p := range group.policies {
				runs[p.name] = new(int)
				for i, v := range p.quick.Validations {
					p.quick.Validations[i] = (&counting{runs: runs[p.name], panics: p.name == tc.panics}).of(v)
				}
			}
			decisions := map[string]Decision{}
			resp := evaluate(t, regroup(group), podInput(t, admission.Create).review(t), Environment{Now: time.Now, Observe: observeInto(decisions)})
			message := ""
			if !resp.Allowed {
				message = resp.Result.Message
			}
			if message != tc.want {
				t.Errorf("message = %q, want %q", message, tc.want)
			}
			if diff := cmp.Diff(tc.decisions, decisions); diff != "" {
				t.Errorf("decisions (-want +got):\n%s", diff)
			}
			for policy, want := range tc.wantRuns {
				if *runs[policy] != want {
					t.Errorf("policy %s ran %d times, want %d", policy, *runs[policy], want)
				}
			}
		})
	}
}

// TestBatchStaysWithinLimits: a batch evaluates no policy that could exceed a limit of
// costs with a request of the same class.
func TestBatchStaysWithinLimits(t *testing.T) {
	const nested = "[1,2,3,4,5,6,7,8,9].all(a, [1,2,3,4,5,6,7,8,9].all(b, [1,2,3,4,5,6,7,8,9].all(c, [1,2,3,4,5,6,7,8,9].all(d, a + b + c + d > 0))))"
	long := `object.metadata.name + "` + strings.Repeat("x", 200) + `"`
	tests := map[string]struct {
		spec  string
		label string // of the pod
		want  uncounted.Outcome
		dear  bool // it exceeds the limit
	}{
		"cheap": {
			spec: "validations: [{expression: 'object.spec.containers.all(c, c.image != \"\")'}]",
			want: uncounted.Satisfied,
		},
		"one expression": {
			spec: "validations: [{expression: 'object.spec.containers.all(e, " + nested + ")'}]",
			want: uncounted.Undecided,
		},
		"all expressions": {
			spec: "validations: [" + strings.Repeat("{expression: '"+nested+"'},", 50) + "]",
			want: uncounted.Undecided,
		},
		"messages": {
			spec: "validations: [" + strings.Repeat("{expression: 'true', messageExpression: '"+nested+" ? \"a\" : \"b\"'},", 50) + "]",
			want: uncounted.Undecided,
		},
		"match conditions": {
			spec: "{matchConditions: [" + strings.Repeat("{name: n, expression: '"+nested+"'},", 20) + "], validations: [{expression: 'true'}]}",
			want: uncounted.Undecided,
		},
		"a variable": {
			spec: "{variables: [{name: x, expression: 'object.spec.containers.all(e, " + nested + ")'}], " +
				"validations: [{expression: 'variables.x'}]}",
			want: uncounted.Undecided,
		},
		"a variable with a long value": {
			spec: "{variables: [{name: x, expression: '" + long + "'}], validations: [{expression: 'variables.x != \"\"'}]}",
			want: uncounted.Undecided,
		},
		"a cost that an object decides": {
			spec: "validations: [{expression: '[1].flatten(object.spec.containers.size()).size() == 1'}]",
			want: uncounted.Undecided,
		},
		"a function of lists": {spec: "validations: [{expression: 'sets.contains([1], [1])'}]", want: uncounted.Satisfied},
		"an ignored variable": {
			spec: "{variables: [{name: x, expression: '" + long + "'}], validations: [{expression: 'variables.x == \"\" || true'}]}",
			want: uncounted.Undecided,
		},
		"a variable of a variable": {
			spec: "{variables: [{name: x, expression: '" + long + "'}, {name: z, expression: 'variables.x == \"\"'}], " +
				"validations: [{expression: 'variables.z || true'}]}",
			want: uncounted.Undecided,
		},
		"a variable of a message": {
			spec: "{variables: [{name: x, expression: '" + long + "'}, {name: z, expression: 'variables.x == \"\"'}], " +
				"validations: [{expression: 'true', messageExpression: 'variables.z ? \"a\" : \"b\"'}]}",
			want: uncounted.Undecided,
		},
		"a variable of a condition": {
			spec: "{variables: [{name: x, expression: '" + long + "'}], " +
				"matchConditions: [{name: a, expression: 'object == null'}, {name: b, expression: 'variables.x == \"\"'}], " +
				"validations: [{expression: 'true'}]}",
			want: uncounted.Undecided,
		},
		"a small variable of a message": {
			spec: "{variables: [{name: x, expression: 'object.metadata.name'}], " +
				"validations: [{expression: 'true', messageExpression: 'string(variables.x)'}]}",
			want: uncounted.Satisfied,
		},
		"a long text": {
			spec:  "validations: [{expression: '!object.metadata.labels.a.contains(object.metadata.labels.a + \"b\")'}]",
			label: strings.Repeat("a", 60000),
			want:  uncounted.Undecided,
			dear:  true,
		},
		"a short text": {
			spec:  "validations: [{expression: '!object.metadata.labels.a.contains(object.metadata.labels.a + \"b\")'}]",
			label: "a",
			want:  uncounted.Satisfied,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			wantDecision := DecisionAllow
			switch {
			case tc.dear:
				wantDecision = DecisionError
			case strings.Contains(tc.spec, "object == null"):
				wantDecision = DecisionSkip
			}
			group := groupFrom(t, map[string]string{"p": tc.spec})
			in := podInput(t, admission.Create)
			if tc.label != "" {
				in.object.(*corev1.Pod).Labels = map[string]string{"a": tc.label}
			}
			r := newRequest(in.review(t))
			if err := r.prepare(t.Context(), inputs{object: unstructuredjson.Everything()}, Environment{}); err != nil {
				t.Fatal(err)
			}
			all := group.index.candidates("pods").targets
			for _, e := range all[0].evaluations(t.Context(), &r.whole, Environment{Now: time.Now}) {
				if e.outcome != tc.want {
					t.Errorf("outcome %d, want %d", e.outcome, tc.want)
				}
			}
			decisions := map[string]Decision{}
			evaluate(t, group, in.review(t), Environment{Now: time.Now, Observe: observeInto(decisions)})
			if diff := cmp.Diff(map[string]Decision{"p": wantDecision}, decisions); diff != "" {
				t.Errorf("decisions (-want +got):\n%s", diff)
			}
		})
	}
}

// The clock of the environment times the evaluations of a batch.
func TestBatchUsesTheClockOfTheEnvironment(t *testing.T) {
	group := groupFrom(t, map[string]string{"a": "validations: [{expression: 'true'}]", "b": "validations: [{expression: 'true'}]"})
	now, elapsed := time.Now(), map[string]time.Duration{}
	evaluate(t, group, podInput(t, admission.Create).review(t), Environment{
		Now:     func() time.Time { now = now.Add(time.Second); return now },
		Observe: func(policy string, _ admissionv1.Operation, _ Decision, took time.Duration) { elapsed[policy] = took },
	})
	if diff := cmp.Diff(map[string]time.Duration{"a": time.Second, "b": time.Second}, elapsed); diff != "" {
		t.Errorf("elapsed (-want +got):\n%s", diff)
	}
}

// TestEqualExpressionsAreEvaluatedOnce: in a call, if the variables that they read are
// equal too, whatever the rules of the policies are.
func TestEqualExpressionsAreEvaluatedOnce(t *testing.T) {
	const rest = "matchConditions: [{name: n, expression: 'object != null'}]\nvalidations: [{expression: 'object.spec.containers.size() == 2'}, {expression: 'variables.x > 1', messageExpression: '\"x is \" + string(variables.x)'}]\n"
	rules := func(operations, resources string) string {
		return "matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: ['*'], " +
			"operations: " + operations + ", resources: " + resources + "}]}\n"
	}
	group := groupFrom(t, map[string]string{
		"a":           "variables: [{name: x, expression: 'object.spec.containers.size()'}]\n" + rest,
		"b":           "variables: [{name: x, expression: 'object.spec.containers.size()'}]\n" + rules("[CREATE]", "[pods]") + rest,
		"c":           "variables: [{name: x, expression: 'object.spec.containers.size() - 1'}]\n" + rules("['*']", "['*']") + rest,
		"d":           "variables: [{name: x, expression: 'object.spec.containers.size() - 1'}]\n" + rest,
		"not-matched": "validations: [{expression: 'object.spec.containers.size() == 1'}]\n" + rules("[UPDATE]", "[pods]"),
	})
	runs := map[*uncounted.Expression]*int{}
	counted := map[*uncounted.Expression]*uncounted.Expression{}
	count := func(u *uncounted.Expression) *uncounted.Expression {
		if counted[u] == nil {
			runs[u] = new(int)
			counted[u] = (&counting{runs: runs[u]}).of(u)
		}
		return counted[u]
	}
	for _, p := range group.policies {
		for _, all := range [][]*uncounted.Expression{p.quick.Conditions, p.quick.Validations, p.quick.Messages} {
			for i, u := range all {
				if u != nil {
					all[i] = count(u)
				}
			}
		}
	}
	decisions := map[string]Decision{}
	resp := evaluate(t, regroup(group), podInput(t, admission.Create).review(t), Environment{Now: time.Now, Observe: observeInto(decisions)})
	if diff := cmp.Diff(map[string]Decision{"a": DecisionAllow, "b": DecisionAllow, "c": DecisionDeny, "d": DecisionDeny}, decisions); diff != "" {
		t.Errorf("decisions (-want +got):\n%s", diff)
	}
	if want := "WebhookPolicy 'c' denied request: x is 1\nWebhookPolicy 'd' denied request: x is 1"; resp.Allowed || resp.Result.Message != want {
		t.Errorf("answer %+v, want %q", resp, want)
	}
	got := map[string]int{}
	for _, n := range runs {
		got[fmt.Sprint(*n, " times")]++
	}
	// The condition, the first validation and the message ran once, the second validation once for each x, and the
	// one of the policy that does not match never.
	if diff := cmp.Diff(map[string]int{"0 times": 1, "1 times": 3, "2 times": 1}, got); diff != "" {
		t.Errorf("expressions by how often they ran (-want +got):\n%s", diff)
	}
}

// TestBatchDecidesSets: the batch decides on every policy of the benchmarks, in every
// version of the engine.
func TestBatchDecidesSets(t *testing.T) {
	for _, engine := range []Engine{OldestEngine, LatestEngine} {
		compiler := NewCompilerFor(engine)
		for _, set := range []string{"B", "R", "V"} {
			var policies []*Compiled
			for _, p := range loadSet(t, set) {
				policies = append(policies, mustCompile(t, compiler, p))
			}
			group := NewGroup(policies)
			for _, pod := range []string{"ok", "bad"} {
				_, matched, err := group.prepare(t.Context(), loadReview(t, pod), Environment{}, inputs{})
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range evaluationsOf(t.Context(), matched, Environment{Now: time.Now}) {
					if e.outcome == uncounted.Undecided || pod == "ok" && e.outcome == uncounted.Violated {
						t.Errorf("%s, set %s, pod %s: policy %s has the outcome %d", engine, set, pod, e.policy.name, e.outcome)
					}
				}
			}
		}
	}
}

// TestErrorsOfBatch: an error has the same text in a batch as alone, and its policy has the same decision.
func TestErrorsOfBatch(t *testing.T) {
	variables := "variables: [{name: absent, expression: 'object.spec.no'}, " +
		"{name: x, expression: 'variables.absent.x'}, " +
		"{name: zero, expression: '1 / 0'}, " +
		"{name: number, expression: 'dyn(int(object.metadata.name))'}, " +
		`{name: constants, expression: '{"a": dyn({"x": 1}), "list": dyn([1])}'}, ` +
		"{name: images, expression: 'object.spec.containers.map(c, c.image)'}, " +
		"{name: ports, expression: 'object.spec.containers.map(c, c.ports)'}, " +
		"{name: name, expression: 'object.metadata.name'}]\n"
	expressions := []string{
		`object.spec.no == 1`, `object.spec.no.no == 1`, `object.metadata.labels["no"] == "x"`, `object.metadata.no["a/b"] == 1`,
		`has(object.spec.no.x)`, `!has(object.spec.securityContext.no.x) || true`, `object.metadata.name.x == 1`,
		`object.spec.containers[9].name == ""`, `object.spec.containers["a"].name == ""`, `object.spec.containers.name == ""`,
		`object.spec.containers.all(c, c.no == 1)`, `object.spec.containers.exists(c, c.no == 1 || c.name == "no")`,
		`object.spec.containers.exists_one(c, c.no == 1)`, `object.spec.containers.filter(c, c.no == 1).size() == 0`,
		`object.spec.containers.map(c, c.name == "no", c.no).size() == 0`, `object.spec.containers.map(c, c.no) == []`,
		`object.metadata.labels.all(k, v, k.no == v)`, `variables.x == 1`,
		`variables.absent == 1 || variables.zero == 1`, `variables.zero == 1 || variables.absent == 1`,
		`variables.ports.all(p, p.size() > 0)`, `variables.images.all(i, i.no == 1)`,
		`variables.name.orValue("") == ""`, `variables.absent.orValue("") == ""`,
		`object.?no.x.orValue(object.no) == 1`, `object.spec.no.?x.orValue(1) == 1`,
		`[dyn(1), object.spec.no, dyn(1 / 0)].size() == 3`, `{"a": object.no}.size() == 1`,
		`int(object.metadata.name) == 1`, `duration(object.metadata.name) > duration("1s")`, `quantity(object.metadata.name).isInteger()`,
		`object.metadata.name.distinct() == []`, `object.spec.no.sort() == [] || true`,
		`object.metadata.name.find(object.metadata.name + "(") == ""`,
		`request.userInfo.extra["no"] == ["x"]`, `object.metadata.name && true`, `object.spec.no ? true : false`,
		`object.metadata.name + 1 == 2`, `size(object.metadata.no) == 1`, `object.spec.containers.all(c, c)`,
		`(object.spec.no == 1) == (1 / 0 == 1)`,
		`object.spec.containers[-1].name == ""`, `variables.images[9] == ""`, `variables.images.all(i, i.split(".")[9] == "")`,
		`object.spec.containers.filter(c, false)[0].name == ""`, `object.spec.containers.map(c, int(c.name)).max() < 1`,
		`uint(object.metadata.name) == 1u`, `double(object.metadata.name) == 1.0`, `bool(object.metadata.name)`,
		`variables.number == 1`, `has(variables.number.x)`, `variables.number == 1 || variables.zero == 1`,
		`variables.zero == 1 || variables.number == 1`, `variables.images.exists(i, semver(i).major() == 1)`,
		`semver("1.2").major() == 1`, `semver("1.x.3").major() == 1`, `semver("").major() == 1`, `quantity("").isInteger()`,
		`quantity("1x").isInteger()`, `variables.images.all(i, quantity(i).isInteger())`, `semver("1.2", true).major() == 2`,
		`[1, 2].map(i, [3][i]).size() == 2`, `variables.constants.no.x == 1`, `variables.constants.a.no == 1`,
		`variables.constants.a.x.no == 1`, `variables.constants.?no.x.orValue(1) == 2`, `has(variables.constants.no.x)`,
		`variables.constants.a.?no.orValue(variables.constants.no) == 1`, `variables.constants.list[7] == 1`,
	}
	messages := []string{
		`"x"`, `string(object.spec.no)`, `string(variables.images[9])`, `string(variables.number)`,
		`"a" + string(1 / 0)`, `string(variables.x)`, `variables.images.join(", ")`,
	}
	failed, denied := 0, 0
	for i, expression := range expressions {
		for _, second := range []string{"false", "true", "object.spec.no2 == 2"} {
			spec := fmt.Sprintf("%svalidations:\n- expression: %q\n- expression: %q\n  messageExpression: %q\n",
				variables, expression, second, messages[i%len(messages)])
			group, alone := groupFrom(t, map[string]string{"p": spec}), groupFrom(t, map[string]string{"p": spec})
			if group.policies[0].quick == nil {
				t.Errorf("%s: the batch does not evaluate it", expression)
			}
			alone.policies[0].quick = nil
			alone = regroup(alone)
			for _, operation := range []admission.Operation{admission.Create, admission.Update} {
				wantDecisions, decisions := map[string]Decision{}, map[string]Decision{}
				review := podInput(t, operation).review(t)
				want := evaluate(t, alone, review, Environment{Now: time.Now, Observe: observeInto(wantDecisions)})
				got := evaluate(t, group, review, Environment{Now: time.Now, Observe: observeInto(decisions)})
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s, %s (-alone +batch):\n%s", expression, second, diff)
				}
				if diff := cmp.Diff(wantDecisions, decisions); diff != "" {
					t.Errorf("%s, %s: decisions (-alone +batch):\n%s", expression, second, diff)
				}
				switch wantDecisions["p"] {
				case DecisionError:
					failed++
				case DecisionDeny:
					denied++
				}
			}
		}
	}
	if failed < 3*len(expressions) || denied == 0 {
		t.Errorf("%d errors and %d denials: the expressions have lost their variety", failed, denied)
	}
}
