package eventratelimit_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/internal/egress"
	"github.com/ostiary/ostiary/internal/plugins/eventratelimit"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/internal/validation"
	"github.com/ostiary/ostiary/test/plugintest"
)

// event is a request of a case.
type event struct {
	Namespace  string `json:"namespace"`
	User       string `json:"user"`
	Component  string `json:"component"`
	Host       string `json:"host"`
	Kind       string `json:"kind"`
	About      string `json:"about"` // the object's namespace
	Name       string `json:"name"`
	UID        string `json:"uid"`
	APIVersion string `json:"apiVersion"`
	Other      bool   `json:"other"` // it is no event
	DryRun     bool   `json:"dryRun"`
	Wait       int    `json:"wait"`
	Refused    bool   `json:"refused"`
}

// request is the event as it is written in one of the API groups.
func (e event) request(group string) plugintest.Request {
	apiVersion, source, about := "v1", "source", "involvedObject"
	if group != "" {
		apiVersion, source, about = group+"/v1", "deprecatedSource", "regarding"
	}
	kind, resource := "Event", metav1.GroupVersionResource{Group: group, Version: "v1", Resource: "events"}
	if e.Other {
		apiVersion, kind, resource = "v1", "ConfigMap", metav1.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	}
	object := map[string]any{
		"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": "x"},
		source: map[string]any{"component": e.Component, "host": e.Host},
		about:  map[string]any{"kind": e.Kind, "namespace": e.About, "name": e.Name, "uid": e.UID, "apiVersion": e.APIVersion},
	}
	text, err := json.Marshal(object)
	if err != nil {
		panic(err) // it holds only strings
	}
	return plugintest.Request{
		Object: string(text), Resource: resource, Namespace: cmp.Or(e.Namespace, "shop"), DryRun: e.DryRun,
		User: authenticationv1.UserInfo{Username: e.User},
	}
}

func specOf(limits any) string {
	text, err := json.Marshal(limits)
	if err != nil {
		panic(err) // it was read from YAML
	}
	return fmt.Sprintf("allowCriticalResources: true\nplugin: {name: EventRateLimit, config: {limits: %s}}", text)
}

func TestLimits(t *testing.T) {
	var cases []struct {
		Name     string  `json:"name"`
		Limits   []any   `json:"limits"`
		Requests []event `json:"requests"`
	}
	text, err := os.ReadFile("testdata/cases.yaml")
	if err == nil {
		err = yaml.UnmarshalStrict(text, &cases)
	}
	if err != nil || len(cases) < 30 {
		t.Fatalf("%d cases, %v", len(cases), err)
	}
	for _, group := range []string{"", "events.k8s.io"} {
		for _, tc := range cases {
			t.Run(tc.Name+"/"+group, func(t *testing.T) {
				compiled, p := plugintest.Compile(t, specOf(tc.Limits))
				now := time.Unix(1, 0)
				host := policy.Environment{Now: func() time.Time { return now }}
				for i, e := range tc.Requests {
					now = now.Add(time.Duration(e.Wait) * time.Second)
					got := plugintest.Put(t, compiled, p, e.request(group), host)
					if refused := got.Code == 429 && got.Reason == metav1.StatusReasonTooManyRequests; refused != e.Refused || !refused && got.Code != 0 {
						t.Fatalf("request %d: %d %s %q, want refused: %t", i, got.Code, got.Reason, got.Message, e.Refused)
					}
				}
			})
		}
	}
}

func TestMessages(t *testing.T) {
	full := event{Namespace: "shop", User: "u", Component: "c", Host: "h", Kind: "Pod", About: "shop", Name: "web", UID: "1", APIVersion: "v1"}
	tests := map[string]struct {
		limits []string
		want   string
	}{
		"server":    {limits: []string{"Server"}, want: "Too many requests: limit reached on type Server for key "},
		"namespace": {limits: []string{"Namespace"}, want: "Too many requests: limit reached on type Namespace for key shop"},
		"object": {
			limits: []string{"SourceAndObject"},
			want:   "Too many requests: limit reached on type SourceAndObject for key chPodshopweb1v1",
		},
		"several": {
			limits: []string{"Namespace", "User"},
			want:   "Too many requests: [limit reached on type Namespace for key shop, limit reached on type User for key u]",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var limits []any
			for _, kind := range tc.limits {
				limits = append(limits, map[string]any{"type": kind, "qps": 1, "burst": 1})
			}
			compiled, p := plugintest.Compile(t, specOf(limits))
			now := time.Now()
			host := policy.Environment{Now: func() time.Time { return now }}
			plugintest.Put(t, compiled, p, full.request(""), host)
			if got := plugintest.Put(t, compiled, p, full.request("events.k8s.io"), host); got.Message != tc.want {
				t.Errorf("%q, want %q", got.Message, tc.want)
			}
		})
	}
}

func TestConfig(t *testing.T) {
	const at = "spec.plugin.config."
	tests := map[string]struct{ config, want string }{
		"the native file": {
			config: "{apiVersion: eventratelimit.admission.k8s.io/v1alpha1, kind: Configuration, limits: [{type: Server, qps: " +
				"1, burst: 1, cacheSize: -1}]}",
		},
		"none": {
			config: "{}",
			want:   at + "limits: Required value: add at least one limit, as {type: Namespace, qps: 10, burst: 50}",
		},
		"another version": {
			config: "{apiVersion: eventratelimit.admission.k8s.io/v2, limits: [{type: Server, qps: 1, burst: 1}]}",
			want: at + `apiVersion: Unsupported value: "eventratelimit.admission.k8s.io/v2": supported values: ` +
				`"eventratelimit.admission.k8s.io/v1alpha1"`,
		},
		"another type": {
			config: "{limits: [{type: server, qps: 1, burst: 1}]}",
			want:   at + `limits[0].type: Unsupported value: "server": supported values: "Server", "Namespace", "User", "SourceAndObject"`,
		},
		"no burst": {
			config: "{limits: [{type: Server, qps: 1}]}",
			want:   at + "limits[0].burst: Invalid value: 0: must be positive: it is how many events may come at once",
		},
		"negative qps": {
			config: "{limits: [{type: Server, qps: -1, burst: 1}]}",
			want:   at + "limits[0].qps: Invalid value: -1: must be positive: it is how many events may come in a second",
		},
		"too many buckets": {config: "{limits: [{type: User, qps: 1, burst: 1}, {type: User, qps: 1, burst: 1, cacheSize: 70000}]}",
			want: at + "limits[1].cacheSize: Invalid value: 70000: choose between 1 and 65536, or leave it out for 4096: every " +
				"bucket takes memory on every replica"},
		"too many limits": {
			config: "{limits: [" + strings.Repeat("{type: User, qps: 1, burst: 1},", 17) + "]}",
			want:   at + "limits: Too many: 17: must have at most 16 items",
		},
		"not a number": {
			config: "{limits: [{type: User, qps: many, burst: 1}]}",
			want:   at + "limits.qps: Invalid value: write a value that fits int32 instead of a string",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			text, err := yaml.YAMLToJSON([]byte(tc.config))
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if _, errs := eventratelimit.Definition().New(text, field.NewPath("spec", "plugin", "config")); len(errs) > 0 {
				got = errs.ToAggregate().Error()
			}
			if got != tc.want {
				t.Errorf("%s\nwant\n%s", got, tc.want)
			}
		})
	}
}

// TestAskedFor: events are critical, and the policy has to say that it is for them.
func TestAskedFor(t *testing.T) {
	const config = "plugin: {name: EventRateLimit, config: {limits: [{type: Server, qps: 1, burst: 1}]}}\n"
	tests := map[string]struct{ spec, want string }{
		"it says so": {spec: config + "allowCriticalResources: true"},
		"it does not": {spec: config, want: "spec.allowCriticalResources: Required value: set it to true: the plugin " +
			"EventRateLimit is for events, " +
			"to which policies do not apply by default, so that a broken policy cannot lock the cluster"},
		"another plugin says so": {spec: "plugin: {name: AlwaysPullImages}\nallowCriticalResources: true",
			want: "spec.allowCriticalResources: Forbidden: remove it, or name a critical resource with its API group in " +
				"matchConstraints.resourceRules: wildcards do not apply to critical resources"},
		"one for everything, with events": {
			spec: "plugin: {name: AlwaysDeny}\nallowCriticalResources: true\n" +
				"matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], resources: [events], operations: [CREATE]}]}",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := plugintest.Policy(t, tc.spec)
			got := ""
			if errs := validation.Validate(policy.NewCompiler(), p, egress.Rule{}).Errors; len(errs) > 0 {
				got = errs.ToAggregate().Error()
			}
			if got != tc.want {
				t.Errorf("%s\nwant\n%s", got, tc.want)
			}
		})
	}
}

// TestWrongUpdate: an enforced policy whose configuration becomes wrong stays
// registered for events.
func TestWrongUpdate(t *testing.T) {
	v := validation.Validate(policy.NewCompiler(),
		plugintest.Policy(t, "allowCriticalResources: true\nplugin: {name: EventRateLimit, config: {limits: []}}"),
		egress.Rule{})
	if !v.Registrable || v.Compiles || len(v.Policy.Spec.MatchConstraints.ResourceRules) != 2 {
		t.Errorf("registrable: %t, compiles: %t, rules: %v", v.Registrable, v.Compiles, v.Policy.Spec.MatchConstraints)
	}
}

// TestContinue: tokens that are spent stay spent when the policy changes in
// anything but the limit.
func TestContinue(t *testing.T) {
	const limit = "[{type: Namespace, qps: 1, burst: 1}"
	tests := map[string]struct {
		after string // the config and spec of the next generation
		want  int32
	}{
		"another binding": {limit + "]}}\nbindings: [{name: b, validationActions: [Deny]}]", 429},
		"one limit more":  {limit + ", {type: User, qps: 1, burst: 1}]}}", 429},
		"another burst":   {"[{type: Namespace, qps: 1, burst: 2}]}}", 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			const start = "allowCriticalResources: true\nplugin: {name: EventRateLimit, config: {limits: "
			now := time.Now()
			host := policy.Environment{Now: func() time.Time { return now }}
			first := plugintest.Judge(t, start+limit+"]}}")
			next := plugintest.Judge(t, start+tc.after)
			ask := func(v validation.Result) int32 {
				return plugintest.Put(t, plugintest.GroupOf(v.Compiled), v.Policy, event{}.request(""), host).Code
			}
			if code := ask(first); code != 0 {
				t.Fatalf("the first event: %d", code)
			}
			next.Compiled.InheritState(first.Compiled)
			if code := ask(next); code != tc.want {
				t.Errorf("the next event: %d, want %d", code, tc.want)
			}
		})
	}
}

// TestParallel: events that come at once share their bucket from the first.
func TestParallel(t *testing.T) {
	compiled, p := plugintest.Compile(t, specOf([]any{map[string]any{"type": "Namespace", "qps": 1, "burst": 5}}))
	now := time.Now()
	host := policy.Environment{Now: func() time.Time { return now }}
	var passed atomic.Int32
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if plugintest.Put(t, compiled, p, event{}.request(""), host).Code == 0 {
				passed.Add(1)
			}
		})
	}
	all.Wait()
	if n := passed.Load(); n != 5 {
		t.Errorf("%d events passed, want 5", n)
	}
}

// TestCounted: what each replica lets through and refuses is in the metrics of
// the policy.
func TestCounted(t *testing.T) {
	compiled, p := plugintest.Compile(t, specOf([]any{map[string]any{"type": "User", "qps": 1, "burst": 3}}))
	now, counts := time.Now(), map[policy.Decision]int{}
	host := policy.Environment{
		Now:     func() time.Time { return now },
		Observe: func(_ string, _ admissionv1.Operation, d policy.Decision, _ time.Duration) { counts[d]++ },
	}
	for range 10 {
		plugintest.Put(t, compiled, p, event{User: "u"}.request(""), host)
	}
	if counts[policy.DecisionAllow] != 3 || counts[policy.DecisionDeny] != 7 {
		t.Errorf("counted %v, want 3 let through and 7 refused", counts)
	}
}
