package policy

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
)

// configMapsByNamespace returns a number of params for each namespace that a paramRef names.
func configMapsByNamespace(numbers map[string]int) paramsFunc {
	byNamespace := map[string][]runtime.Object{}
	for namespace, n := range numbers {
		for i := range n {
			byNamespace[namespace] = append(byNamespace[namespace], paramConfigMap(namespace, fmt.Sprintf("p%04d", i), "a", fmt.Sprint(i)))
		}
	}
	return func(ref *admissionregistrationv1.ParamRef) []runtime.Object { return byNamespace[ref.Namespace] }
}

const (
	inA = "{name: a, paramRef: {selector: {}, namespace: a, parameterNotFoundAction: Allow}}"
	inB = "{name: b, paramRef: {selector: {}, namespace: b, parameterNotFoundAction: Allow}}"
)

func TestTooManyParams(t *testing.T) {
	const (
		passes  = ofConfigMaps + "validations: [{expression: 'params.data.max != \"none\"', message: m}]\n"
		denies  = ofConfigMaps + "validations: [{expression: 'params.data.max != \"999\"', message: m}]\n"
		mutates = ofConfigMaps + "matchConditions: [{name: c, expression: 'params.data.max == \"none\"'}]\n"
		ignore  = "failurePolicy: Ignore\n"
		fix     = " that a request reads for a policy at spec.bindings[%d].paramRef: select fewer by name, namespace or labels, or delete some"
		of      = "WebhookPolicy 'p' with binding '%s' denied request: failed to configure binding: "
	)
	change := mutations(label("a", "params.data.max"))
	tooMany := fmt.Sprintf(of, "a") + "1001 params are more than the 1000" + fmt.Sprintf(fix, 0)
	together := fmt.Sprintf(of, "b") + "401 params in addition to the 600 of earlier bindings are more than the 1000" + fmt.Sprintf(fix, 1)
	tests := map[string]struct {
		spec    string
		numbers map[string]int
		want    string // the denial; empty if the request is allowed
	}{
		"as many as allowed":             {spec: passes + bound(inA), numbers: map[string]int{"a": 1000}},
		"as many are all evaluated":      {spec: denies + bound(inA), numbers: map[string]int{"a": 1000}, want: "WebhookPolicy 'p' with binding 'a' denied request: m"},
		"one more":                       {spec: passes + bound(inA), numbers: map[string]int{"a": 1001}, want: tooMany},
		"one more, Ignore":               {spec: ignore + passes + bound(inA), numbers: map[string]int{"a": 1001}},
		"one more, beside a denial":      {spec: ignore + denies + bound(inA, inB), numbers: map[string]int{"a": 1001, "b": 1000}, want: "WebhookPolicy 'p' with binding 'b' denied request: m"},
		"bindings together":              {spec: passes + bound(inA, inB), numbers: map[string]int{"a": 600, "b": 400}},
		"bindings with too many":         {spec: passes + bound(inA, inB), numbers: map[string]int{"a": 600, "b": 401}, want: together},
		"mutations, as many as allowed":  {spec: mutates + change + bound(inA), numbers: map[string]int{"a": 1000}},
		"mutations, one more":            {spec: mutates + change + bound(inA), numbers: map[string]int{"a": 1001}, want: tooMany},
		"mutations, one more, Ignore":    {spec: ignore + mutates + change + bound(inA), numbers: map[string]int{"a": 1001}},
		"mutations, bindings, too many":  {spec: mutates + change + bound(inA, inB), numbers: map[string]int{"a": 600, "b": 401}, want: together},
		"many params that nothing reads": {spec: "validations: [{expression: 'true'}]\n", numbers: map[string]int{"": 5000}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			host := testWorld.host()
			host.Params = configMapsByNamespace(tc.numbers)
			group := groupFrom(t, map[string]string{"p": tc.spec})
			call := group.Validate
			if strings.Contains(tc.spec, "mutations:") {
				call = group.Mutate
			}
			response, err := call(t.Context(), podInput(t, admission.Create).review(t), host)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if !response.Allowed {
				got = response.Result.Message
			}
			if got != tc.want {
				t.Errorf("denied with %q, want %q", got, tc.want)
			}
		})
	}
}

// TestPauses checks that an evaluation pauses between its steps. The clock advances by 1 ms with each reading.
func TestPauses(t *testing.T) {
	const (
		reads     = ofConfigMaps + "validations: [{expression: 'params.data.max != \"none\"', message: m}]\n"
		satisfied = "validations: [{expression: 'object.metadata.name != \"none\"', message: m}]\n"
	)
	policies := func(n int, spec string) map[string]string {
		specs := map[string]string{}
		for i := range n {
			specs[fmt.Sprintf("p%d", i)] = spec
		}
		return specs
	}
	tests := map[string]struct {
		specs   map[string]string
		numbers map[string]int
		want    int // at least
	}{
		"params":             {specs: policies(1, reads+bound(inA)), numbers: map[string]int{"a": 100}, want: 100},
		"params of bindings": {specs: policies(1, reads+bound(inA, inB)), numbers: map[string]int{"a": 30, "b": 40}, want: 70},
		"policies":           {specs: policies(50, satisfied), want: 50},
		"policies alone":     {specs: policies(50, satisfied+"matchConditions: [{name: c, expression: 'authorizer.path(\"/\").check(\"allow\").allowed()'}]\n"), want: 50},
		"mutations":          {specs: policies(1, ofConfigMaps+mutations(label("a", "params.data.max"))+bound(inA)), numbers: map[string]int{"a": 100}, want: 100},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			host := testWorld.host()
			host.Params = configMapsByNamespace(tc.numbers)
			now, pauses := time.Unix(0, 0), 0
			host.Now = func() time.Time { now = now.Add(time.Millisecond + 1); return now }
			host.Pause = func(context.Context) { pauses++ }
			group := groupFrom(t, tc.specs)
			call := group.Validate
			if strings.Contains(tc.specs["p0"], "mutations:") {
				call = group.Mutate
			}
			response, err := call(t.Context(), podInput(t, admission.Create).review(t), host)
			if err != nil || !response.Allowed {
				t.Fatalf("answer = %+v, %v", response, err)
			}
			if pauses < tc.want {
				t.Errorf("%d pauses, want at least %d", pauses, tc.want)
			}
		})
	}
}

// TestPauseIsNotTheTimeOfAPolicy checks that the time in which others are evaluated is not that of a policy of a batch.
func TestPauseIsNotTheTimeOfAPolicy(t *testing.T) {
	host := testWorld.host()
	now := time.Unix(0, 0)
	host.Now = func() time.Time { now = now.Add(2 * time.Millisecond); return now }
	host.Pause = func(context.Context) { now = now.Add(time.Hour) }
	host.Observe = func(policy string, _ admissionv1.Operation, _ Decision, elapsed time.Duration) {
		if elapsed > time.Minute {
			t.Errorf("policy %s took %s", policy, elapsed)
		}
	}
	group := groupFrom(t, map[string]string{"a": "validations: [{expression: 'object.metadata.name != \"none\"'}]\n", "b": "validations: [{expression: 'object != null'}]\n"})
	evaluate(t, group, podInput(t, admission.Create).review(t), host)
}

// TestNoEvaluationAfterTheDeadline has the time end in a pause. No further param is evaluated, and the request is denied.
func TestNoEvaluationAfterTheDeadline(t *testing.T) {
	host := testWorld.host()
	host.Params = configMapsByNamespace(map[string]int{"a": 100})
	ctx, cancel := context.WithCancel(t.Context())
	pauses := 0
	host.Pause = func(context.Context) {
		if pauses++; pauses == 50 {
			cancel()
		}
	}
	group := groupFrom(t, map[string]string{"p": ofConfigMaps + "validations: [{expression: 'params.data.max != \"none\"', message: m}]\n" + bound(inA)})
	response, err := group.Validate(ctx, podInput(t, admission.Create).review(t), host)
	if err != nil || response.Allowed || !strings.Contains(response.Result.Message, "not evaluated: context canceled") {
		t.Errorf("answer = %+v, %v, want a denial because the time is over", response, err)
	}
}
