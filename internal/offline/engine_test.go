package offline

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/policy"
)

// parse reads objects.
func parse(t testing.TB, text string) []load.Object {
	t.Helper()
	objects, err := load.Objects(t.Context(), []string{load.Stdin}, load.Options{Stdin: strings.NewReader(text)})
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// setUp returns an engine and a world for the objects of a text.
func setUp(t testing.TB, text string, compiler *policy.Compiler) (*Engine, *World) {
	t.Helper()
	in, err := Sort(parse(t, text))
	if err != nil {
		t.Fatal(err)
	}
	apis, err := NewAPIs(compiler.Engine(), in.Definitions)
	if err != nil {
		t.Fatal(err)
	}
	e, err := NewEngine(in.Policies, compiler, apis)
	if err != nil {
		t.Fatal(err)
	}
	return e, NewWorld(apis, in.Namespaces, in.Objects,
		Answers{{Verb: "override", Decision: Allow, User: "root"}, {Verb: "override", Decision: NoOpinion}})
}

// whp returns a policy.
func whp(name, rules, spec string) string {
	return fmt.Sprintf("---\napiVersion: admission.ostiary.dev/v1alpha1\nkind: WebhookPolicy\nmetadata: {name: %s}\n"+
		"spec:\n  matchConstraints:\n    resourceRules: %s\n%s\n", name, rules, spec)
}

const (
	allPods  = `[{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: ["*"]}]`
	anything = `[{apiGroups: ["*"], apiVersions: ["*"], resources: ["*"], operations: ["*"]}]`
	denyAll  = "  validations: [{expression: 'false', message: denied}]"
	prod     = "    namespaceSelector: {matchLabels: {tier: prod}}\n"
	shop     = "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {tier: prod}}\n"
)

func TestEvaluate(t *testing.T) {
	widgets := "---\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n" +
		"metadata: {name: widgets.example.com}\nspec:\n  group: example.com\n  scope: Namespaced\n" +
		"  names: {plural: widgets, singular: widget, kind: Widget}\n  versions:\n" +
		"  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: " +
		"object, properties: {sizes: {type: array, x-kubernetes-list-type: set, items: {type: string}}}}}}}}\n"
	param := "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: limits}\ndata: {max: '3'}\n"
	withParam := "  paramKind: {apiVersion: v1, kind: ConfigMap}\n  validations: [{expression: 'object.spec.replicas <= " +
		"int(params.data.max)', messageExpression: '\"at most \" + params.data.max'}]\n" +
		"  bindings: [{name: b, paramRef: {name: limits, namespace: default, parameterNotFoundAction: Deny}}]"
	deployments := `[{apiGroups: [apps], apiVersions: [v1], resources: [deployments], operations: [CREATE]}]`
	setTeam := "  mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: 'Object{metadata: " +
		"Object.metadata{labels: {\"team\": \"a\"}}}'}}]"
	tests := map[string]struct {
		given, object, old string
		options            RequestOptions
		want               []string // policy, phase and decision
		wantMessages       []string
	}{
		"denied": {
			given:        whp("p", allPods, denyAll),
			object:       "{apiVersion: v1, kind: Pod, metadata: {name: a}}",
			want:         []string{"p validate deny"},
			wantMessages: []string{"WebhookPolicy 'p' denied request: denied"},
		},
		"another resource": {
			given:  whp("p", allPods, denyAll),
			object: "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}",
		},
		"a namespace selector": {
			given:        shop + whp("p", allPods, prod+denyAll),
			object:       "{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: shop}}",
			want:         []string{"p validate deny"},
			wantMessages: []string{"WebhookPolicy 'p' denied request: denied"},
		},
		"another namespace": {
			given:  shop + whp("p", allPods, prod+denyAll),
			object: "{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: other}}",
		},
		"an object selector": {
			given:  whp("p", allPods, "    objectSelector: {matchLabels: {a: b}}\n"+denyAll),
			object: "{apiVersion: v1, kind: Pod, metadata: {name: a, labels: {a: c}}}",
		},
		"the selected old object": {
			given:        whp("p", allPods, "    objectSelector: {matchLabels: {a: b}}\n"+denyAll),
			object:       "{apiVersion: v1, kind: Pod, metadata: {name: a}}",
			old:          "{apiVersion: v1, kind: Pod, metadata: {name: a, labels: {a: b}}}",
			want:         []string{"p validate deny"},
			wantMessages: []string{"WebhookPolicy 'p' denied request: denied"},
		},
		"an exempt namespace": {
			given:  whp("p", allPods, denyAll),
			object: "{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: kube-system}}",
		},
		"an exempt Namespace": {
			given:  whp("p", anything, denyAll),
			object: "{apiVersion: v1, kind: Namespace, metadata: {name: kube-system}}",
		},
		"a guarded resource": {
			given:  whp("p", anything, denyAll),
			object: "{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: a}}",
		},
		"a wildcard": {
			given:        whp("p", anything, denyAll),
			object:       "{apiVersion: v1, kind: Node, metadata: {name: a}}",
			want:         []string{"p validate deny"},
			wantMessages: []string{"WebhookPolicy 'p' denied request: denied"},
		},
		"a param": {
			given:        param + whp("p", deployments, withParam),
			object:       "{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {replicas: 4}}",
			want:         []string{"p validate deny"},
			wantMessages: []string{"WebhookPolicy 'p' with binding 'b' denied request: at most 3"},
		},
		"a missing param": {
			given:  whp("p", deployments, withParam),
			object: "{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {replicas: 1}}",
			want:   []string{"p validate error"},
			wantMessages: []string{
				"WebhookPolicy 'p' with binding 'b' denied request: failed to configure binding: no params found for policy " +
					"binding with `Deny` parameterNotFoundAction",
			},
		},
		"a custom resource": {
			given: widgets + whp("p",
				"[{apiGroups: [example.com], apiVersions: [v1], resources: [widgets], operations: [CREATE]}]", denyAll),
			object:       "{apiVersion: example.com/v1, kind: Widget, metadata: {name: a}}",
			want:         []string{"p validate deny"},
			wantMessages: []string{"WebhookPolicy 'p' denied request: denied"},
		},
		"a delete": {
			given: whp("p", allPods,
				"  validations: [{expression: 'object == null && oldObject.metadata.name == \"b\"', message: denied}]"),
			old:          "{apiVersion: v1, kind: Pod, metadata: {name: a}}",
			want:         []string{"p validate deny"},
			wantMessages: []string{"WebhookPolicy 'p' denied request: denied"},
		},
		"an authorizer that says no": {
			given: whp("p", allPods,
				"  validations: [{expression: 'authorizer.group(\"x\").resource(\"y\").check(\"override\").allowed()', message: ask}]"),
			object:       "{apiVersion: v1, kind: Pod, metadata: {name: a}}",
			want:         []string{"p validate deny"},
			wantMessages: []string{"WebhookPolicy 'p' denied request: ask"},
		},
		"an authorizer that says yes": {
			given: whp("p", allPods, "  validations: [{expression: "+
				"'authorizer.group(\"x\").resource(\"y\").check(\"override\").allowed()', message: ask}]"),
			object:  "{apiVersion: v1, kind: Pod, metadata: {name: a}}",
			options: userOptions("root"),
			want:    []string{"p validate allow"},
		},
		"an authorizer without answer": {given: whp("p", allPods,
			"  validations: [{expression: '!authorizer.group(\"x\").resource(\"y\").check(\"get\").allowed()'}]"),
			object: "{apiVersion: v1, kind: Pod, metadata: {name: a}}", want: []string{"p validate error"},
			wantMessages: []string{
				`WebhookPolicy 'p' denied request: asking for authorization: no answer is given for the check {user: "developer", ` +
					`verb: "get", group: "x", resource: "y"}`,
			}},
		"mutations first": {
			given:  whp("p", allPods, setTeam+"\n  validations: [{expression: 'object.metadata.labels.team == \"a\"'}]"),
			object: "{apiVersion: v1, kind: Pod, metadata: {name: a}}",
			want:   []string{"p mutate mutate", "p validate allow"},
		},
		"the order of mutations": {given: whp("late", allPods, "  order: 900\n"+setTeam) + whp("z-early", allPods,
			"  order: 1\n  mutations: [{patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: \"add\", path: "+
				"\"/metadata/labels\", value: {\"early\": \"yes\"}}]'}}]"), object: "{apiVersion: v1, kind: Pod, metadata: {name: a}}",
			want: []string{"z-early mutate mutate", "late mutate mutate"}},
		"a mutation of a custom resource": {given: widgets + whp("p",
			"[{apiGroups: [example.com], apiVersions: [v1], resources: [widgets], operations: [CREATE]}]",
			"  mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: 'Object{spec: Object.spec{sizes: [\"xl\"]}}'}}]"),
			object: "{apiVersion: example.com/v1, kind: Widget, metadata: {name: a}, spec: {sizes: [s]}}", want: []string{"p mutate mutate"}},
		"a conversion": {given: whp("p",
			"[{apiGroups: [autoscaling], apiVersions: [v1], resources: [horizontalpodautoscalers], operations: [CREATE]}]",
			denyAll), object: "{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: a}}",
			want: []string{"p validate error"},
			wantMessages: []string{
				"the policy is for horizontalpodautoscalers of autoscaling/v1, and the object is in autoscaling/v2: an API server " +
					"converts it, this program cannot; give the object in that version",
			}},
		"a subresource": {given: whp("p",
			`[{apiGroups: [apps], apiVersions: [v1], resources: [deployments/scale], operations: [UPDATE]}]`, denyAll),
			object: "{apiVersion: autoscaling/v1, kind: Scale, metadata: {name: a}}",
			old:    "{apiVersion: autoscaling/v1, kind: Scale, metadata: {name: a}}",
			options: RequestOptions{
				Subresource: "scale",
				Resource:    "deployments.apps",
			}, want: []string{"p validate deny"}, wantMessages: []string{"WebhookPolicy 'p' denied request: denied"}},
		"a plugin": {
			given:  whp("p", allPods, "  plugin: {name: AlwaysDeny}"),
			object: "{apiVersion: v1, kind: Pod, metadata: {name: a}}",
			want:   []string{"p validate deny"},
			wantMessages: []string{
				"WebhookPolicy 'p' denied request: pods \"a\" is forbidden: admission control is denying all modifications",
			},
		},
		"a backend": {
			given: whp("p", allPods, "  backend: {type: Validating, url: 'https://hooks.example.com/', "+
				"admissionReviewVersions: [v1], sideEffects: None}"),
			object: "{apiVersion: v1, kind: Pod, metadata: {name: a}}",
			want:   []string{"p validate backend"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for _, compiler := range []*policy.Compiler{policy.NewCompiler(), policy.NewTracingCompiler(policy.LatestEngine)} {
				e, w := setUp(t, tt.given, compiler)
				request, err := e.APIs.NewRequest(one(t, tt.object), one(t, tt.old), tt.options)
				if err != nil {
					t.Fatal(err)
				}
				result, err := e.Evaluate(t.Context(), request, w, Options{Details: true})
				if err != nil {
					t.Fatal(err)
				}
				var got, messages []string
				for _, o := range result.Outcomes {
					got = append(got, fmt.Sprint(o.Policy, " ", o.Phase, " ", o.Decision))
					messages = append(messages, o.Messages()...)
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("outcomes (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(tt.wantMessages, messages); diff != "" {
					t.Errorf("messages (-want +got):\n%s", diff)
				}
				if denied := slices.ContainsFunc(got,
					func(o string) bool {
						return strings.HasSuffix(o, "deny") ||
							strings.HasSuffix(o, "error")
					}); denied == result.Allowed {
					t.Errorf("allowed = %t, and the outcomes are %v", result.Allowed, got)
				}
			}
		})
	}
}

func userOptions(name string) RequestOptions {
	o := RequestOptions{}
	o.User.Username = name
	return o
}

func one(t testing.TB, text string) *load.Object {
	t.Helper()
	if text == "" {
		return nil
	}
	return &parse(t, text)[0]
}

func TestReinvocation(t *testing.T) {
	count := "  order: %d\n  reinvocationPolicy: %s\n  mutations: [{patchType: ApplyConfiguration, applyConfiguration: " +
		"{expression: 'Object{metadata: Object.metadata{annotations: {\"a\": object.metadata.?labels[?\"b\"].orValue(\"none\")}}}'}}]"
	last := whp("z", allPods, "  order: 9\n  mutations: [{patchType: ApplyConfiguration, applyConfiguration: "+
		"{expression: 'Object{metadata: Object.metadata{labels: {\"b\": \"late\"}}}'}}]")
	for again, want := range map[string]string{"IfNeeded": `"a":"late"`, "Never": `"a":"none"`} {
		t.Run(again, func(t *testing.T) {
			e, w := setUp(t, whp("a", allPods, fmt.Sprintf(count, 1, again))+last, policy.NewCompiler())
			request, err := e.APIs.NewRequest(one(t, "{apiVersion: v1, kind: Pod, metadata: {name: a}}"), nil, RequestOptions{})
			if err != nil {
				t.Fatal(err)
			}
			result, err := e.Evaluate(t.Context(), request, w, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(result.Object), want) || len(result.Outcomes) != 2 {
				t.Errorf("got %s with %v, want %s", result.Object, result.Outcomes, want)
			}
		})
	}
}

func TestSkipValidation(t *testing.T) {
	mutate := whp("m", allPods, "  mutations: [{patchType: ApplyConfiguration, applyConfiguration: "+
		"{expression: 'Object{metadata: Object.metadata{labels: {\"a\": \"b\"}}}'}}]")
	e, w := setUp(t, mutate+whp("v", allPods, denyAll), policy.NewCompiler())
	request, err := e.APIs.NewRequest(one(t, "{apiVersion: v1, kind: Pod, metadata: {name: a}}"), nil, RequestOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for alone, want := range map[bool]int{true: 1, false: 2} {
		result, err := e.Evaluate(t.Context(), request, w, Options{SkipValidation: alone})
		if err != nil {
			t.Fatal(err)
		}
		if len(result.Outcomes) != want || result.Allowed != alone || !result.Changed {
			t.Errorf("mutations alone: %t: got %v, allowed %t", alone, result.Outcomes, result.Allowed)
		}
	}
}

func TestBackendAnswers(t *testing.T) {
	e, w := setUp(t, whp("p", allPods,
		"  backend: {type: Validating, url: 'https://hooks.example.com/', admissionReviewVersions: [v1], "+
			"sideEffects: None}"), policy.NewCompiler())
	request, err := e.APIs.NewRequest(one(t, "{apiVersion: v1, kind: Pod, metadata: {name: a}}"), nil, RequestOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for decision, response := range map[policy.Decision]*admissionv1.AdmissionResponse{
		policy.DecisionAllow: {Allowed: true},
		policy.DecisionDeny:  {},
		policy.DecisionError: nil,
	} {
		result, err := e.Evaluate(t.Context(), request, w, Options{Backend: func(string) *admissionv1.AdmissionResponse { return response }})
		if err != nil {
			t.Fatal(err)
		}
		if got := result.Outcomes[0].Decision; got != decision || result.Allowed != (decision == policy.DecisionAllow) {
			t.Errorf("got %s, allowed %t, want %s", got, result.Allowed, decision)
		}
	}
}

func TestInvalidRequests(t *testing.T) {
	apis, err := NewAPIs(policy.LatestEngine, nil)
	if err != nil {
		t.Fatal(err)
	}
	const pod = "{apiVersion: v1, kind: Pod, metadata: {name: a}}"
	tests := map[string]struct {
		object, old string
		options     RequestOptions
		want        string
	}{
		"nothing": {want: "the request has neither an object nor an old object"},
		"an unknown kind": {
			object: "{apiVersion: example.com/v1, kind: Widget}",
			want: "stdin:1:30: kind: the kind Widget in example.com/v1 is not known: add its CustomResourceDefinition to the " +
				"files, or correct apiVersion and kind",
		},
		"two kinds": {
			object: pod,
			old:    "{apiVersion: v1, kind: Node, metadata: {name: a}}",
			want:   "stdin:1:18: kind: the old object is a Node in v1, and the object a Pod in v1",
		},
		"two names": {
			object: pod,
			old:    "{apiVersion: v1, kind: Pod, metadata: {name: b}}",
			want:   `stdin:1:40: metadata.name: the old object has the name "b": the name of an object is immutable`,
		},
		"an update without old": {
			object:  pod,
			options: RequestOptions{Operation: admissionv1.Update},
			want:    "stdin:1:1: an UPDATE has an object and an oldObject",
		},
		"a create with old": {
			object:  pod,
			old:     pod,
			options: RequestOptions{Operation: admissionv1.Create},
			want:    "stdin:1:1: a CREATE has no oldObject",
		},
		"a delete with both": {
			object:  pod,
			old:     pod,
			options: RequestOptions{Operation: admissionv1.Delete},
			want:    "stdin:1:1: a DELETE has only an oldObject",
		},
		"a namespace of a node": {
			object: "{apiVersion: v1, kind: Node, metadata: {name: a, namespace: b}}",
			want:   "stdin:1:50: metadata.namespace: nodes are cluster-scoped: remove the namespace",
		},
		"an unknown subresource": {
			object:  pod,
			options: RequestOptions{Subresource: "foo"},
			want:    `stdin:1:18: kind: no resource has the subresource "foo" with the kind Pod in v1`,
		},
		"a resource without group": {
			object:  "{apiVersion: autoscaling/v1, kind: Scale}",
			options: RequestOptions{Subresource: "scale", Resource: "deployments"},
			want: `stdin:1:30: kind: the resource "deployments" has no subresource "scale" with the kind Scale: set ` +
				`resource to one of deployments.apps, replicasets.apps, replicationcontrollers, statefulsets.apps`,
		},
		"an ambiguous subresource": {
			object:  "{apiVersion: autoscaling/v1, kind: Scale}",
			options: RequestOptions{Subresource: "scale"},
			want: `stdin:1:30: kind: several resources have the subresource "scale": set resource to one of ` +
				`deployments.apps, replicasets.apps, replicationcontrollers, statefulsets.apps`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := apis.NewRequest(one(t, tt.object), one(t, tt.old), tt.options)
			if err == nil || err.Error() != tt.want {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
}

func TestInvalidPolicies(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"an unknown field": {
			text: whp("p", allPods, "  validation: []"),
			want: "stdin:8:3: spec.validation: WebhookPolicy has no such field: correct or remove it",
		},
		"a field of a binding": {
			text: whp("p", allPods, "  validationActions: [Deny]"),
			want: "stdin:8:3: spec.validationActions: WebhookPolicy has no such field: it belongs to a binding, move it to " +
				"spec.bindings[0].validationActions",
		},
		"an expression": {
			text: whp("p", allPods, "  validations:\n  - expression: objekt.x"),
			want: "stdin:9:5: spec.validations[0].expression: p: ",
		},
		"the same name twice": {
			text: whp("p", allPods, denyAll) + whp("p", allPods, denyAll),
			want: `stdin:12:12: metadata.name: the policy "p" is also at stdin:4:12: remove one of them`,
		},
		"another kind": {
			text: "{apiVersion: admission.ostiary.dev/v1alpha1, kind: Policy}",
			want: "stdin:1:46: kind: admission.ostiary.dev has no kind Policy in version v1alpha1: write kind: WebhookPolicy " +
				"and apiVersion: admission.ostiary.dev/v1alpha1",
		},
		"no name": {
			text: "{apiVersion: admission.ostiary.dev/v1alpha1, kind: WebhookPolicy, metadata: {}}",
			want: "stdin:1:67: metadata.name: the policy has no name: add it",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			in, err := Sort(parse(t, tt.text))
			if err == nil {
				apis, apiErr := NewAPIs(policy.LatestEngine, nil)
				if apiErr != nil {
					t.Fatal(apiErr)
				}
				_, err = NewEngine(in.Policies, policy.NewCompiler(), apis)
			}
			if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
}
