package verify

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/cli/explain"
	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/migrate/conversion"
	"github.com/ostiary/ostiary/internal/migrate/gatekeeper"
	"github.com/ostiary/ostiary/internal/migrate/kyverno/celpolicies"
	"github.com/ostiary/ostiary/internal/migrate/native"
)

const objectsToCompare = `{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {tier: prod}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: teams, namespace: shop}, data: {teams: "shop,search"}}
---
{apiVersion: v1, kind: Pod, metadata: {name: good, namespace: shop, labels: {team: shop}}, spec: {containers: [{name: app, image: app}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: bad, namespace: shop, labels: {team: other}}, spec: {hostNetwork: true, containers: [{name: app, image: app}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: elsewhere, namespace: test}, spec: {containers: [{name: app, image: app}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: system, namespace: kube-system}, spec: {containers: [{name: app, image: app}]}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}, spec: {template: {spec: {containers: [{name: app, image: app}]}}}}
---
{apiVersion: example.com/v1, kind: Widget, metadata: {name: w, namespace: shop}, spec: {size: 3}}
`

// rules matches CREATE and UPDATE of a resource, except in the namespace that is exempt from
// Ostiary.
func rules(group, resource string) string {
	return "  matchConstraints:\n    resourceRules: [{apiGroups: ['" + group + "'], apiVersions: [v1], resources: [" +
		resource + "], operations: [CREATE, UPDATE]}]\n" +
		"    namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system]}]}\n"
}

func validatingText(spec, binding string) string {
	return "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: p}\nspec:\n" + spec +
		"---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\n" +
		"metadata: {name: p.bound}\nspec: {policyName: p, " + binding + "}\n"
}

func mutatingText(spec string) string {
	return "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingAdmissionPolicy\nmetadata: {name: p}\nspec:\n" +
		"  reinvocationPolicy: Never\n" + spec +
		"---\napiVersion: admissionregistration.k8s.io/v1\nkind: MutatingAdmissionPolicyBinding\nmetadata: {name: p}\nspec: {policyName: p}\n"
}

func gatekeeperText(source, constraint string) string {
	return "apiVersion: templates.gatekeeper.sh/v1\nkind: ConstraintTemplate\nmetadata: {name: k8steam}\nspec:\n" +
		"  crd: {spec: {names: {kind: K8sTeam}, validation: {openAPIV3Schema: {type: object, properties: {team: {type: " +
		"string, default: shop}, least: {type: integer}}}}}}\n" +
		"  targets: [{target: admission.k8s.gatekeeper.sh, code: [{engine: K8sNativeValidation, source: " + source + "}]}]\n" +
		"---\napiVersion: constraints.gatekeeper.sh/v1beta1\nkind: K8sTeam\nmetadata: {name: team}\nspec: " + constraint + "\n"
}

const kyvernoHead = "apiVersion: policies.kyverno.io/v1\nkind: ValidatingPolicy\nmetadata: {name: p}\nspec:\n"

// compared are sources whose results decide like them: requests that one of the two
// evaluates.
func compared() map[string]struct {
	source string
	total  int
} {
	const team = `  validations: [{expression: "object.metadata.?labels[?'team'].orValue('') == 'shop'", message: "set the team"}]` + "\n"
	return map[string]struct {
		source string
		total  int
	}{
		"deny":           {source: validatingText(rules("", "pods")+team, "validationActions: [Deny]"), total: 6},
		"deny and audit": {source: validatingText(rules("", "pods")+team, "validationActions: [Deny, Audit]"), total: 6},
		"warn and audit": {source: validatingText(rules("", "pods")+team, "validationActions: [Warn, Audit]"), total: 6},
		"a custom kind": {
			source: validatingText(rules("example.com",
				"widgets")+`  validations: [{expression: "object.spec.size < 3", reason: Forbidden}]`+"\n",
				"validationActions: [Deny]"),
			total: 2,
		},
		"an error": {
			source: validatingText(rules("", "pods")+`  validations: [{expression: "object.spec.hostNetwork == false"}]`+"\n",
				"validationActions: [Deny]"),
			total: 6,
		},
		"an ignored one": {
			source: validatingText(rules("",
				"pods")+"  failurePolicy: Ignore\n"+`  validations: [{expression: "object.spec.hostNetwork == false"}]`+"\n",
				"validationActions: [Deny]"),
			total: 6,
		},
		"a condition": {
			source: validatingText(rules("",
				"pods")+`  matchConditions: [{name: c, expression: "object.metadata.name == 'bad'"}]`+"\n"+team,
				"validationActions: [Deny]"),
			total: 6,
		},
		"a binding": {
			source: validatingText(rules("", "pods")+team,
				"validationActions: [Deny], matchResources: {namespaceSelector: {matchLabels: {tier: prod}}}"),
			total: 6,
		},
		"namespaceObject": {
			source: validatingText(rules("",
				"pods")+`  validations: [{expression: "has(namespaceObject.metadata.labels.tier)"}]`+"\n",
				"validationActions: [Deny]"),
			total: 6,
		},
		"DELETE": {
			source: validatingText(strings.Replace(rules("", "pods"), "CREATE, UPDATE", "DELETE",
				1)+`  validations: [{expression: "oldObject.metadata.name != 'bad' && request.operation == 'DELETE'"}]`+"\n",
				"validationActions: [Deny]"),
			total: 3,
		},
		"params": {source: validatingText(rules("",
			"pods")+"  paramKind: {apiVersion: v1, kind: ConfigMap}\n"+
			`  variables: [{name: team, expression: "object.metadata.?labels[?'team'].orValue('')"}]`+"\n"+
			`  validations: [{expression: "variables.team in params.data.teams.split(',')", messageExpression: "'no team ' + `+
			`variables.team"}]`+"\n"+`  auditAnnotations: [{key: team, valueExpression: "variables.team"}]`+"\n",
			"validationActions: [Deny, Audit], paramRef: {name: teams, namespace: shop, parameterNotFoundAction: Deny}"), total: 6},
		"absent params": {
			source: validatingText(rules("", "pods")+"  paramKind: {apiVersion: v1, kind: ConfigMap}\n"+team,
				"validationActions: [Deny], paramRef: {name: absent, parameterNotFoundAction: Deny}"),
			total: 6,
		},
		"a configuration": {
			source: mutatingText(rules("",
				"pods") + `  mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: "Object{metadata: ` +
				`Object.metadata{labels: {'seen': object.metadata.name}}}"}}]` + "\n"),
			total: 6,
		},
		"JSON patches": {
			source: mutatingText(rules("",
				"pods") + `  mutations: [{patchType: JSONPatch, jsonPatch: {expression: "[JSONPatch{op: 'add', path: ` +
				`'/spec/hostPID', value: true}, JSONPatch{op: 'add', path: '/spec/containers/-', value: ` +
				`Object.spec.containers{name: 'log', image: 'log'}}]"}}]` + "\n"),
			total: 6,
		},
		"a failed patch": {
			source: mutatingText(rules("",
				"pods") + `  mutations: [{patchType: JSONPatch, jsonPatch: {expression: "[JSONPatch{op: 'remove', path: ` +
				`'/spec/hostNetwork'}]"}}]` + "\n"),
			total: 6,
		},
		"Kyverno": {source: kyvernoHead + "  validationActions: [Deny]\n" + rules("", "pods") + team, total: 6},
		"Kyverno in a namespace": {
			source: strings.Replace(strings.Replace(kyvernoHead, "kind: V", "kind: NamespacedV", 1), "{name: p}",
				"{name: p, namespace: shop}", 1) + "  validationActions: [Audit]\n" + rules("", "pods") + team,
			total: 4,
		},
		"Kyverno's mutation": {source: strings.Replace(kyvernoHead, "Validating", "Mutating", 1) + rules("", "pods") +
			`  mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: "Object{spec: ` +
			`Object.spec{dnsPolicy: 'None'}}"}}]` + "\n", total: 6},
		"Gatekeeper": {source: gatekeeperText(`{variables: [{name: team, expression: `+
			`"variables.anyObject.metadata.?labels[?'team'].orValue('')"}], validations: [{expression: "variables.team == `+
			`variables.params.team", messageExpression: "'no team ' + variables.team"}]}`,
			"{match: {kinds: [{apiGroups: [''], kinds: [Pod]}], excludedNamespaces: ['kube-*']}, parameters: {least: 1}}"), total: 6},
		"Gatekeeper's matching": {source: gatekeeperText(`{validations: [{expression: "false", message: "no\n  team"}]}`,
			"{enforcementAction: warn, match: {namespaces: [sho*], name: '*d', scope: Namespaced, labelSelector: "+
				"{matchExpressions: [{key: team, operator: Exists}]}, namespaceSelector: {matchLabels: {tier: prod}}}}"), total: 4},
	}
}

func TestObjectsAgree(t *testing.T) {
	for name, tt := range compared() {
		t.Run(name, func(t *testing.T) {
			got := compareText(t, tt.source, nil)
			if diff := cmp.Diff(&Result{Agree: tt.total, Total: tt.total, Effects: got.Effects}, got); diff != "" || got.Effects == 0 {
				t.Errorf("%d decisions have an effect; result (-want +got):\n%s", got.Effects, diff)
			}
		})
	}
}

// A result that decides otherwise is found, with the expression that decided.
func TestObjectsDiffer(t *testing.T) {
	team := compared()["deny and audit"].source
	tests := map[string]struct {
		source string
		change func(*v1alpha1.WebhookPolicySpec)
		want   []Difference
	}{
		"an expression": {source: team,
			change: func(s *v1alpha1.WebhookPolicySpec) { s.Validations[0].Expression = "object.metadata.name == 'bad'" },
			want: []Difference{
				{Assertion: "CREATE Pod shop/good",
					Text: "the source allows it, and the result denies it with 422 Invalid: set the team; audits validation 0 for " +
						"[Deny Audit]: set the team",
					Why: []string{
						`p spec.validations[0].expression: object.metadata.name == 'bad' is false, with object.metadata.name = "good"`,
					}},
				{Assertion: "CREATE Pod shop/bad",
					Text: "the source denies it with 422 Invalid: set the team; audits validation 0 for [Deny Audit]: set the team, " +
						"and the result allows it",
					Why: []string{"p spec.validations[0].expression is true"}},
			}},
		"an action": {source: team, change: func(s *v1alpha1.WebhookPolicySpec) {
			s.Bindings[0].ValidationActions = s.Bindings[0].ValidationActions[1:]
		}, want: []Difference{
			{Assertion: "CREATE Pod shop/bad",
				Text: "the source denies it with 422 Invalid: set the team; audits validation 0 for [Deny Audit]: set the team, " +
					"and the result allows it; audits validation 0 for [Audit]: set the team",
				Why: []string{
					`p spec.validations[0].expression: object.metadata.?labels[?'team'].orValue('') == 'shop' is false, with ` +
						`object.metadata.?labels[?"team"].orValue("") = "other"`,
				}},
		}},
		"an exempt namespace": {source: validatingText("  matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: "+
			"[v1], resources: [pods], operations: [CREATE]}]}\n  validations: [{expression: 'object.metadata.name != "+
			"\"system\"', message: denied}]\n", "validationActions: [Deny]"),
			want: []Difference{
				{
					Assertion: "CREATE Pod kube-system/system",
					Text:      "the source denies it with 422 Invalid: denied, and the result allows it",
					Why:       []string{"p is not evaluated: the namespace kube-system is exempt from every policy"},
				},
			}},
		"a mutation": {source: compared()["a configuration"].source, change: func(s *v1alpha1.WebhookPolicySpec) {
			s.Mutations[0].ApplyConfiguration.Expression = "Object{metadata: Object.metadata{labels: {'seen': 'good'}}}"
		}, want: []Difference{
			{
				Assertion: "CREATE Pod shop/bad",
				Text: `the source allows it; changes {"metadata":{"labels":{"seen":"bad"}}}, and the result allows it; ` +
					`changes {"metadata":{"labels":{"seen":"good"}}}`,
			},
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := compareText(t, tt.source, tt.change)
			for _, want := range tt.want {
				found := false
				for _, d := range got.Different {
					if found = found || strings.HasSuffix(d.Assertion, ", "+want.Assertion); !strings.HasSuffix(d.Assertion, ", "+want.Assertion) {
						continue
					}
					if d.Text != want.Text || len(d.Why) != len(want.Why) || len(d.Why) > 0 && !strings.HasPrefix(d.Why[0], want.Why[0]) {
						t.Errorf("%s: got %s because of %q, want %s because of %q", want.Assertion, d.Text, d.Why, want.Text, want.Why)
					}
				}
				if !found {
					t.Errorf("no difference about %s: got %+v", want.Assertion, got)
				}
			}
			if got.Agree+len(got.Different) != got.Total || got.Agree == 0 {
				t.Errorf("got %d of %d with %d differences", got.Agree, got.Total, len(got.Different))
			}
		})
	}
}

// What cannot be compared is listed with the reason.
func TestObjectsSkipped(t *testing.T) {
	const pods = "  matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], resources: [pods], operations: [CREATE]}]}\n"
	tests := map[string]struct{ source, want string }{
		"workloads": {
			source: kyvernoHead + pods + "  validations: [{expression: 'true'}]\n",
			want:   "3 requests about workloads: Kyverno decides about them with rules that it generates",
		},
		"the authorizer": {
			source: validatingText(pods+"  validations: [{expression: 'authorizer.path(\"/x\").check(\"get\").allowed()'}]\n",
				"validationActions: [Deny]"),
			want: "it asks the authorizer: write a PolicyTest with its answers",
		},
		"no binding": {
			source: strings.Split(validatingText(pods+"  validations: [{expression: 'true'}]\n", ""), "---\n")[0],
			want:   "no binding of the input names the policy, so it has no effect",
		},
		"Kyverno's CEL": {
			source: kyvernoHead + rules("",
				"pods") + "  validations: [{expression: \"object.metadata.labels.orValue({}) != {}\"}]\n",
			want: "the CEL of Kyverno evaluates spec.validations[0].expression in another way than that of Kubernetes",
		},
		"namespaceObject": {
			source: kyvernoHead + rules("",
				"pods") + "  matchConditions: [{name: c, expression: 'has(namespaceObject.metadata)'}]\n  validations: [{expression: 'true'}]\n",
			want: "spec.matchConditions[0].expression reads namespaceObject, which only Kyverno has there",
		},
		"not written in CEL": {
			source: "apiVersion: mutations.gatekeeper.sh/v1\nkind: AssignMetadata\nmetadata: {name: a}\n" +
				"spec: {location: metadata.labels.a, parameters: {assign: {value: b}}}\n",
			want: "only sources in CEL are compared",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := compareText(t, tt.source, nil)
			if len(got.Skipped) != 1 || got.Skipped[0].Why != tt.want {
				t.Errorf("got %+v, want %q", got, tt.want)
			}
		})
	}
}

// compareText converts sources, changes the result, and compares.
func compareText(t *testing.T, text string, change func(*v1alpha1.WebhookPolicySpec)) *Result {
	t.Helper()
	input, err := load.Text(t.Context(), "in.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	objects, err := load.Text(t.Context(), "objects.yaml", []byte(objectsToCompare))
	if err != nil {
		t.Fatal(err)
	}
	var conversions []conversion.Conversion
	for _, s := range []conversion.Source{native.Source(), celpolicies.Source(), gatekeeper.Source()} {
		in := &conversion.Input{All: input, Options: conversion.Options{Params: conversion.ParamsConstants}}
		for i := range input {
			if s.Owns(input[i].GroupVersionKind().GroupKind()) {
				in.Objects = append(in.Objects, input[i])
			}
		}
		converted, err := s.Convert(in)
		if err != nil {
			t.Fatal(err)
		}
		conversions = append(conversions, converted...)
	}
	for _, c := range conversions {
		for _, o := range c.Outputs {
			if p := o.Policy().DeepCopy(); change != nil { // the source shares its fields
				change(&p.Spec)
				o.Object = p
			}
		}
	}
	v := &Verifier{Recorder: func() Recorder { return &explain.Recorder{} }}
	got, err := v.Objects(t.Context(), input, objects, conversions)
	if err != nil {
		t.Fatal(err)
	}
	return got
}
