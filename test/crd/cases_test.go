package crd

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/dynamic"
)

// repeat writes a YAML list of n entries; each %d of the entry is its index.
func repeat(n int, entry string) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("\n- " + strings.ReplaceAll(entry, "%d", fmt.Sprint(i)))
	}
	return b.String()
}

// ruleWith is the field matchConstraints with one rule, whose named field has
// another value.
func ruleWith(field, value string) string {
	rule := map[string]string{"apiGroups": `[""]`, "apiVersions": "[v1]", "resources": "[pods]", "operations": "[CREATE]"}
	rule[field] = value
	var b strings.Builder
	for name, v := range rule {
		fmt.Fprintf(&b, ", %s: %s", name, v)
	}
	return fmt.Sprintf("matchConstraints: {resourceRules: [{%s}]}", b.String()[2:])
}

// selectorWith is the field matchConstraints with a namespaceSelector.
func selectorWith(selector string) string {
	return `matchConstraints:
  resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}]
  namespaceSelector: ` + selector
}

const (
	applyMutation = "{patchType: ApplyConfiguration, applyConfiguration: {expression: 'Object{}'}}"
	patchMutation = "{patchType: JSONPatch, jsonPatch: {expression: '[]'}}"
)

// mutationWith is the field mutations with one entry.
func mutationWith(mutation string) string { return "mutations: [" + mutation + "]" }

// paramsWith is the fields paramKind and bindings, with one paramRef.
func paramsWith(ref string) string {
	return "paramKind: {apiVersion: v1, kind: ConfigMap}\n" + bindingWith("paramRef", ref)
}

// bindingWith is the field bindings with one entry that has the field.
func bindingWith(field, value string) string {
	return "bindings: [{name: b, " + field + ": " + value + "}]"
}

// bindingRuleWith is the field bindings with one entry, whose matchResources
// have one rule, whose named field has another value.
func bindingRuleWith(field, value string) string {
	return bindingWith("matchResources", strings.TrimPrefix(ruleWith(field, value), "matchConstraints: "))
}

func long(n int) string { return strings.Repeat("a", n) }

func testAccepted(t *testing.T, policies dynamic.ResourceInterface) {
	cases := acceptedBackends()
	maps.Copy(cases, acceptedPolicies())
	maps.Copy(cases, acceptedLookups())
	for name, fields := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := dryRun(t, policies, policyWith(t, fields)); err != nil {
				t.Errorf("refused: %v", err)
			}
		})
	}
}

func acceptedPolicies() map[string]string {
	return map[string]string{
		"nothing but what is required": "",
		"exceptions":                   "exceptions: {}",
		"exceptions of a month":        "exceptions: {maxDurationSeconds: 2592000}",
		"as many bindings as allowed":  "bindings:" + repeat(100, "{name: b%d, validationActions: [Deny, Audit]}"),
		"as many validations, with the longest expression": "validations:" +
			repeat(100, `{expression: "`+long(16384)+`", message: "`+long(1024)+`", reason: Forbidden}`),
		"50 templates of a resource": "podTemplates:\n  kinds:" + strings.ReplaceAll(repeat(50,
			"{group: "+long(253)+", version: v1, resource: jobs, templatePath: spec.t%d}"), "\n", "\n  "),
		"a message written as a block":   "validations:\n- expression: 'true'\n  message: |\n    one line\n",
		"an expression of several lines": "validations:\n- expression: |\n    true &&\n    true\n",
		"qualified names " +
			"of conditions": `matchConditions: [{name: example.com/Not_a.node, expression: "true"}, {name: b, expression: "true"}]`,
		"'*' beside a subresource":               ruleWith("resources", `["*", pods/log]`),
		"'*' alone":                              ruleWith("operations", `["*"]`),
		"a longest label":                        selectorWith("{matchLabels: {example.com/a: " + long(63) + "}}"),
		"a binding without actions":              "bindings: [{name: b}]",
		"only mutations, on an explicit timeout": "validations: null\n" + mutationWith(applyMutation) + "\ntimeoutSeconds: 30",
		"only audit annotations":                 "validations: null\nauditAnnotations: [{key: k, valueExpression: 'null'}]",
		"as many mutations, with the longest expression": "mutations:" +
			repeat(100, `{patchType: JSONPatch, jsonPatch: {expression: "`+long(10000)+`"}}`),
		"the longest mutation": mutationWith(`{patchType: ApplyConfiguration, applyConfiguration: ` +
			`{expression: ` + long(16384) + `}}`),
		"the first order":                        mutationWith(applyMutation) + "\norder: 0\nreinvocationPolicy: Never",
		"the last order":                         mutationWith(applyMutation) + "\norder: 1000\nreinvocationPolicy: IfNeeded",
		"mutations of every operation":           mutationWith(applyMutation) + "\n" + ruleWith("operations", `["*"]`),
		"mutations beside validations of DELETE": mutationWith(applyMutation) + "\n" + ruleWith("operations", `[CREATE, DELETE]`),
		"as many audit annotations, with the longest key and expression": "auditAnnotations:" +
			repeat(20, `{key: "`+long(60)+`_%d", valueExpression: "`+long(5120)+`"}`),
		"params by name":                              paramsWith("{name: a, namespace: b, parameterNotFoundAction: Deny}"),
		"params by selector":                          paramsWith("{selector: {matchLabels: {a: b}}, parameterNotFoundAction: Allow}"),
		"all params":                                  paramsWith("{selector: {}, parameterNotFoundAction: Allow}"),
		"an empty name beside a selector":             paramsWith(`{name: "", selector: {}, parameterNotFoundAction: Allow}`),
		"params of a custom kind":                     "paramKind: {apiVersion: rules.example.com/v1beta1, kind: ReplicaLimit}",
		"a kind of params that no binding hands over": "paramKind: {apiVersion: v1, kind: ConfigMap}",
		"as many bindings as allowed, each with all of its fields": "paramKind: {apiVersion: v1, kind: ConfigMap}\n" +
			"bindings:" + repeat(100, `{name: b%d,
    paramRef: {selector: {matchExpressions: [{key: example.com/a, operator: Exists}]}, parameterNotFoundAction: Deny},
    matchResources: {matchPolicy: Exact, namespaceSelector: {matchLabels: {a: b}}, objectSelector: {},
      resourceRules: [{apiGroups: [apps], apiVersions: ["*"], resources: [deployments/scale], operations: [UPDATE], resourceNames: [..., ..a, .b, c.d]}],
      excludeResourceRules: [{apiGroups: [apps], apiVersions: ["*"], resources: ["*"], operations: ["*"]}]},
    validationActions: [Warn, Audit]}`),
		"a binding's matchResources without rules": bindingWith("matchResources", "{}"),
		"every selector operator": selectorWith(`{matchExpressions: [{key: a, operator: In, values: [x, ""]},
    {key: a, operator: NotIn, values: [x]}, {key: example.com/a, operator: Exists}, {key: a, operator: DoesNotExist}]}`),
	}
}

func testRefused(t *testing.T, policies dynamic.ResourceInterface) {
	for name, tc := range refusedCases() {
		t.Run(name, func(t *testing.T) {
			_, err := dryRun(t, policies, policyWith(t, tc.fields))
			if err == nil {
				t.Fatal("accepted, want it refused")
			}
			if diff := cmp.Diff(tc.want, causes(t, err)); diff != "" {
				t.Errorf("causes (-want +got):\n%s", diff)
			}
		})
	}
}

type refusedCase struct {
	fields string
	want   []string
}

const (
	labelKey   = `^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$`
	objectName = `^(\.{0,2}[^./%][^/%]*|\.{3}[^/%]*)$`
)

// unfit is what the API server says of a value that does not fit a pattern.
func unfit(path, value, pattern string) string {
	return fmt.Sprintf("%s: Invalid value: %q: %s in body should match '%s'", path, value, path, pattern)
}

const nothingToDo = "spec: Required value: add at least one entry to mutations, validations or auditAnnotations, or a plugin or a backend"

func refusedCases() map[string]refusedCase {
	out := map[string]refusedCase{}
	for _, cases := range []map[string]refusedCase{
		refusedPolicies(), refusedParams(), refusedMutations(), refusedAuditAnnotations(), refusedMatchResources(),
		refusedBackends(), refusedPlugins(), refusedLookups(),
	} {
		maps.Copy(out, cases)
	}
	return out
}

// onlyDefined are the cases that internal/validation accepts, by the reason.
func onlyDefined() map[string][]string {
	return map[string][]string{
		"the decoder of the manager skips unknown fields": {
			"binding with an unknown field", "unknown field", "unknown field deep",
		},
		"the field has no effect there and does no harm": {
			"a validating backend with a reinvocationPolicy", "a validating backend with an order",
			"order without mutations", "paramRef without paramKind", "reinvocationPolicy without mutations",
		},
		"the policy applies to the other operations, as its author wrote": {
			"mutations of DELETE",
		},
		"the rule is as old as the field, so no stored policy breaks it": {
			"Deny and Warn", "exceptions of no time", "exceptions of a century",
			"a lookup in the cluster that blocks requests", "a lookup named with a dash", "a lookup named with a reserved word",
			"a lookup of a subresource", "a lookup twice", "a lookup of an unknown scope", "a lookup with an unknown match",
			"a CA from a Secret without a key", "a CA from a key with a slash", "a CA from both",
			"a CA from neither", "a backend for v2", "a backend of an unknown type", "a backend with side effects",
			"a backend without a type", "a backend without versions", "a bundle that is not PEM",
			"a bundle with a private key", "a bundle with a private key alone", "a certificate for a url",
			"a certificate without a name", "a path with an empty step", "a path without a slash",
			"a service in capitals", "a service with port 0", "a service with port 65536", "a service without a CA",
			"a service without a namespace", "a version twice", "an empty bundle", "audit key empty",
			"audit key twice", "audit key with a slash", "binding name in capitals", "binding name twice",
			"condition name twice", "condition name with a space", "message of spaces", "message of two lines",
			"no actions", "param kind empty", "param kind that is none", "param kind without a version",
			"param name with a slash", "param namespace in capitals", "param selector that needs values",
			"param selector with a bad key", "param version that is none", "paramRef with an empty name",
			"paramRef with name and selector", "paramRef with neither", "paramRef without parameterNotFoundAction",
			"the same action twice", "three sources of the CA", "two sources of the CA", "unknown action",
			"unknown parameterNotFoundAction", "unknown reason", "variable name reserved",
			"variable name with a dash",
		},
	}
}

// validatedCase is a policy that the definition accepts and internal/validation refuses, or
// warns about.
type validatedCase struct {
	fields string
	// reason says why the definition has no such rule.
	reason string
	want   []string
}

const (
	needsPairs   = "CEL would compare each pair of an API group and a resource, which costs more than its budget"
	needsDefault = "only Ostiary's code knows the default kinds, exempt namespaces and conditions"
	needsPlugin  = "the rules of the plugin are not in the policy"
)

func onlyValidated() map[string]validatedCase {
	const (
		match  = "spec.matchConstraints."
		first  = match + "resourceRules[0]."
		kinds  = "spec.podTemplates.kinds"
		unlock = ", so that a broken policy cannot lock the cluster"
	)
	return map[string]validatedCase{
		"a guarded resource": {ruleWith("resources", "[events]"), needsPairs,
			[]string{
				first + `resources[0]: Forbidden: remove "events", or set spec.allowCriticalResources to true: by default ` +
					`policies do not apply to it` + unlock,
			}},
		"a group that is never called": {ruleWith("apiGroups", "[admissionregistration.k8s.io]"), needsPairs,
			[]string{first + `apiGroups[0]: Forbidden: remove "admissionregistration.k8s.io": policies never apply to it` + unlock}},
		"no critical resource": {"allowCriticalResources: true", needsPairs,
			[]string{
				"spec.allowCriticalResources: Forbidden: remove it, or name a critical resource with its API group in " +
					"matchConstraints.resourceRules: wildcards do not apply to critical resources",
			}},
		"a subresource that an entry before it matches": {ruleWith("resources", "[pods/*, pods/status]"), needsPairs,
			[]string{first + `resources[1]: Invalid value: remove it: "pods/*", earlier in the list, matches it too`}},
		"an object twice": {ruleWith("resourceNames", "[a, a]"), "the list of Kubernetes' type is not a set",
			[]string{first + "resourceNames[1]: Duplicate value"}},
		"only exempt namespaces": {selectorWith("{matchLabels: {kubernetes.io/metadata.name: kube-system}}"), needsDefault,
			[]string{
				match + "namespaceSelector.matchLabels[kubernetes.io/metadata.name]: Forbidden: select other namespaces too: " +
					"policies never apply in kube-node-lease and kube-system" + unlock,
			}},
		"mutations of DELETE beside validations": {mutationWith(applyMutation) + "\n" + ruleWith("operations", "[DELETE]"),
			"the definition has a rule for policies without validations only",
			[]string{
				match + "resourceRules: Required value: add CREATE, UPDATE or CONNECT to the operations of a rule: mutations are not called for DELETE",
			}},
		"templates without a rule for Pods": {ruleWith("resources", "[configmaps]") + "\npodTemplates: {}", needsPairs,
			[]string{
				"spec.podTemplates: Forbidden: remove it, or add a rule to matchConstraints.resourceRules that matches CREATE or " +
					"UPDATE of pods, without resourceNames: it is for policies about Pods",
			}},
		"another path of a " +
			"default kind": {"podTemplates: {kinds: [{group: apps, version: v1, resource: deployments, templatePath: spec.other}]}", needsDefault,
			[]string{kinds + "[0]: Invalid value: remove version and templatePath: Ostiary knows them for this resource"}},
		"templates of two versions": {"podTemplates: {kinds: [{group: a.io, version: v1, resource: w, templatePath: " +
			"spec.a}, {group: a.io, version: v2, resource: w, templatePath: spec.b}]}", needsPairs,
			[]string{kinds + `[1].version: Invalid value: write "v1", the version of the other templates of w: a request has one version`}},
		"a condition of Ostiary's": {backendWith("") + "\nmatchConditions: [{name: may-not-break-glass, expression: 'true'}]", needsDefault,
			[]string{"spec.matchConditions[0].name: Invalid value: choose another name: Ostiary has a condition of this name"}},
		"a plugin without templates": {"validations: null\nplugin: {name: DenyServiceExternalIPs}\npodTemplates: {}\n" +
			"matchConstraints: null", needsPlugin,
			[]string{"spec.podTemplates: Forbidden: remove it: the plugin DenyServiceExternalIPs does not decide about pod templates"}},
		"a long timeout": {"timeoutSeconds: 11", "the definition has no warnings",
			[]string{
				"warning: spec.timeoutSeconds: requests wait up to 11 seconds while Ostiary does not answer, longer than many " +
					"clients do; choose 10 or less",
			}},
		"an expression that does not compile": {"validations: [{expression: object.}]", "the definition does not compile CEL",
			[]string{
				"spec.validations[0].expression: Invalid value: compilation failed: ERROR: <input>:1:8: Syntax error: no viable " +
					"alternative at input '.'\n | object.\n | .......^",
			}},
	}
}

func refusedParams() map[string]refusedCase {
	return map[string]refusedCase{
		"paramRef without paramKind": {bindingWith("paramRef", "{name: a, parameterNotFoundAction: Deny}"),
			[]string{"spec.paramKind: Required value: set paramKind: a binding has a paramRef"}},
		"paramRef with name and selector": {paramsWith("{name: a, selector: {}, parameterNotFoundAction: Deny}"),
			[]string{"spec.bindings[0].paramRef: Invalid value: set either name or selector"}},
		"paramRef with neither": {paramsWith("{parameterNotFoundAction: Deny}"),
			[]string{"spec.bindings[0].paramRef: Invalid value: set either name or selector"}},
		"paramRef with an empty name": {paramsWith(`{name: "", parameterNotFoundAction: Deny}`),
			[]string{"spec.bindings[0].paramRef: Invalid value: set either name or selector"}},
		"paramRef without parameterNotFoundAction": {paramsWith("{name: a}"),
			[]string{
				"spec.bindings[0].paramRef.parameterNotFoundAction: Required value: set parameterNotFoundAction for the case that " +
					"there is no such object: Allow, or Deny to apply the failurePolicy",
			}},
		"unknown parameterNotFoundAction": {paramsWith("{name: a, parameterNotFoundAction: Warn}"),
			[]string{"spec.bindings[0].paramRef.parameterNotFoundAction: Unsupported value: \"Warn\": supported values: \"Allow\", \"Deny\""}},
		"param name with a slash": {paramsWith("{name: a/b, parameterNotFoundAction: Deny}"),
			[]string{"spec.bindings[0].paramRef.name: Invalid value: \"a/b\": write the name of one object, without '/' and '%'"}},
		"param namespace in capitals": {paramsWith("{name: a, namespace: B, parameterNotFoundAction: Deny}"),
			[]string{
				"spec.bindings[0].paramRef.namespace: Invalid value: \"B\": write the name of a namespace: lower-case letters, digits and '-'",
			}},
		"param selector " +
			"with a bad key": {paramsWith("{selector: {matchExpressions: [{key: a b, operator: Exists}]}, parameterNotFoundAction: Deny}"),
			[]string{unfit("spec.bindings[0].paramRef.selector.matchExpressions[0].key", "a b", labelKey)}},
		"param selector that " +
			"needs values": {paramsWith("{selector: {matchExpressions: [{key: a, operator: In}]}, parameterNotFoundAction: Deny}"),
			[]string{
				"spec.bindings[0].paramRef.selector.matchExpressions[0].values: Required value: add at least one value: the " +
					"operators In and NotIn need them",
			}},
		"param kind without a version": {"paramKind: {kind: ConfigMap}",
			[]string{"spec.paramKind.apiVersion: Required value"}},
		"param version that is none": {"paramKind: {apiVersion: a/b/c, kind: ConfigMap}",
			[]string{
				"spec.paramKind.apiVersion: Invalid value: write apiVersion as group/version, such as example.com/v1, or v1 for the core group",
			}},
		"param kind that is none": {"paramKind: {apiVersion: v1, kind: config maps}",
			[]string{"spec.paramKind.kind: Invalid value: write the kind as in its manifests, such as ConfigMap"}},
		"param kind empty": {"paramKind: {apiVersion: v1, kind: ''}",
			[]string{"spec.paramKind.kind: Invalid value: write the kind as in its manifests, such as ConfigMap"}},
	}
}

func refusedMutations() map[string]refusedCase {
	return map[string]refusedCase{
		"101 mutations": {"mutations:" + repeat(101, applyMutation),
			[]string{"spec.mutations: Too many: 101: must have at most 100 items"}},
		"unknown patchType": {mutationWith("{patchType: MergePatch, jsonPatch: {expression: '[]'}}"),
			[]string{"spec.mutations[0].patchType: Unsupported value: \"MergePatch\": supported values: \"ApplyConfiguration\", \"JSONPatch\""}},
		"patchType left out": {mutationWith("{jsonPatch: {expression: '[]'}}"),
			[]string{"spec.mutations[0].patchType: Required value"}},
		"ApplyConfiguration without one": {mutationWith("{patchType: ApplyConfiguration}"),
			[]string{"spec.mutations[0].applyConfiguration: Required value: add applyConfiguration: patchType ApplyConfiguration requires it"}},
		"JSONPatch without one": {mutationWith("{patchType: JSONPatch}"),
			[]string{"spec.mutations[0].jsonPatch: Required value: add jsonPatch: patchType JSONPatch requires it"}},
		"ApplyConfiguration with a patch": {mutationWith("{patchType: ApplyConfiguration, jsonPatch: {expression: '[]'}}"),
			[]string{
				"spec.mutations[0].applyConfiguration: Required value: add applyConfiguration: patchType ApplyConfiguration requires it",
				"spec.mutations[0].jsonPatch: Forbidden: remove jsonPatch, or set patchType to JSONPatch",
			}},
		"both, after another": {"mutations: [" + patchMutation +
			", {patchType: JSONPatch, jsonPatch: {expression: '[]'}, applyConfiguration: {expression: 'Object{}'}}]",
			[]string{"spec.mutations[1].applyConfiguration: Forbidden: remove applyConfiguration, or set patchType to ApplyConfiguration"}},
		"empty patch": {mutationWith("{patchType: JSONPatch, jsonPatch: {expression: ' '}}"),
			[]string{"spec.mutations[0].jsonPatch.expression: Required value: write a CEL expression"}},
		"patch without its expression": {mutationWith("{patchType: JSONPatch, jsonPatch: {}}"),
			[]string{"spec.mutations[0].jsonPatch.expression: Required value"}},
		"configuration too long": {mutationWith("{patchType: ApplyConfiguration, applyConfiguration: {expression: " + long(16385) + "}}"),
			[]string{"spec.mutations[0].applyConfiguration.expression: Too long: may not be more than 16384 bytes"}},
		"reinvocationPolicy without mutations": {"reinvocationPolicy: Never",
			[]string{"spec.reinvocationPolicy: Forbidden: remove reinvocationPolicy: only mutations are invoked again"}},
		"unknown reinvocationPolicy": {mutationWith(applyMutation) + "\nreinvocationPolicy: Always",
			[]string{"spec.reinvocationPolicy: Unsupported value: \"Always\": supported values: \"Never\", \"IfNeeded\""}},
		"order without mutations": {"order: 500",
			[]string{"spec.order: Forbidden: remove order: only mutations have an order"}},
		"order 1001": {mutationWith(applyMutation) + "\norder: 1001",
			[]string{"spec.order: Invalid value: 1001: spec.order in body should be less than or equal to 1000"}},
		"order -1": {mutationWith(applyMutation) + "\norder: -1",
			[]string{"spec.order: Invalid value: -1: spec.order in body should be greater than or equal to 0"}},
		"mutations of DELETE": {"validations: null\n" + mutationWith(applyMutation) + "\n" + ruleWith("operations", "[CREATE, DELETE]"),
			[]string{
				"spec.matchConstraints.resourceRules: Invalid value: remove DELETE from operations: mutations do not apply to it, " +
					"and the policy has nothing else",
			}},
	}
}

func refusedAuditAnnotations() map[string]refusedCase {
	return map[string]refusedCase{
		"21 audit annotations": {"auditAnnotations:" + repeat(21, "{key: k%d, valueExpression: 'null'}"),
			[]string{"spec.auditAnnotations: Too many: 21: must have at most 20 items"}},
		"audit key twice": {"auditAnnotations: [{key: k, valueExpression: 'null'}, {key: k, valueExpression: 'null'}]",
			[]string{"spec.auditAnnotations[1]: Duplicate value: {\"key\":\"k\"}"}},
		"audit key with a slash": {"auditAnnotations: [{key: a/b, valueExpression: 'null'}]",
			[]string{
				"spec.auditAnnotations[0].key: Invalid value: write key with letters, digits, '-', '_' and '.', beginning and " +
					"ending with a letter or digit",
			}},
		"audit key empty": {"auditAnnotations: [{key: '', valueExpression: 'null'}]",
			[]string{
				"spec.auditAnnotations[0].key: Invalid value: write key with letters, digits, '-', '_' and '.', beginning and " +
					"ending with a letter or digit",
			}},
		"audit key too long": {"auditAnnotations: [{key: " + long(64) + ", valueExpression: 'null'}]",
			[]string{"spec.auditAnnotations[0].key: Too long: may not be more than 63 bytes"}},
		"audit value of spaces": {"auditAnnotations: [{key: k, valueExpression: '  '}]",
			[]string{"spec.auditAnnotations[0].valueExpression: Required value: write a CEL expression that gives a string or null"}},
		"audit value left out": {"auditAnnotations: [{key: k}]",
			[]string{"spec.auditAnnotations[0].valueExpression: Required value"}},
		"audit value too long": {"auditAnnotations: [{key: k, valueExpression: " + long(5121) + "}]",
			[]string{"spec.auditAnnotations[0].valueExpression: Too long: may not be more than 5120 bytes"}},
	}
}

func refusedPlugins() map[string]refusedCase {
	const aPlugin = "\nplugin: {name: AlwaysDeny}"
	return map[string]refusedCase{
		"a plugin beside validations": {"validations: [{expression: 'true'}]" + aPlugin,
			[]string{"spec.validations: Forbidden: remove validations, or plugin: a policy has one or the other"}},
		"a plugin beside mutations": {"validations: null\n" + mutationWith(applyMutation) + aPlugin,
			[]string{"spec.mutations: Forbidden: remove mutations, or plugin: a policy has one or the other"}},
		"a plugin beside audit annotations": {"validations: null\nauditAnnotations: [{key: k, valueExpression: 'null'}]" + aPlugin,
			[]string{"spec.auditAnnotations: Forbidden: remove auditAnnotations, or plugin: a policy has one or the other"}},
		"a plugin with a paramKind": {"validations: null\nparamKind: {apiVersion: v1, kind: ConfigMap}" + aPlugin,
			[]string{"spec.paramKind: Forbidden: remove paramKind: a plugin gets no params"}},
		"a plugin beside a backend": {backendWith("") + aPlugin,
			[]string{"spec.plugin: Forbidden: remove plugin, or backend: a policy has one or the other"}},
		"templates beside a backend": {backendWith("") + "\npodTemplates: {}",
			[]string{"spec.podTemplates: Forbidden: remove podTemplates: a backend gets whole objects; name the workloads in matchConstraints"}},
		"a kind without the path of its template": {"podTemplates: {kinds: [{group: argoproj.io, version: v1alpha1, resource: rollouts}]}",
			[]string{
				"spec.podTemplates.kinds[0].templatePath: Required value: set templatePath, such as spec.template: only the " +
					"default kinds have one without it",
			}},
		"a kind without a version": {"podTemplates: {kinds: [{group: argoproj.io, resource: rollouts, templatePath: spec.template}]}",
			[]string{"spec.podTemplates.kinds[0].version: Required value: set version: templatePath is the path in that version"}},
	}
}

func refusedMatchResources() map[string]refusedCase {
	return map[string]refusedCase{
		"binding with an unknown match policy": {bindingWith("matchResources", "{matchPolicy: Loose}"),
			[]string{"spec.bindings[0].matchResources.matchPolicy: Unsupported value: \"Loose\": supported values: \"Exact\", \"Equivalent\""}},
		"binding with 101 rules": {bindingWith("matchResources",
			"{resourceRules: ["+strings.Repeat(`{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]},`, 101)+"]}"),
			[]string{"spec.bindings[0].matchResources.resourceRules: Too many: 101: must have at most 100 items"}},
		"binding with '*' beside a group": {bindingRuleWith("apiGroups", `["*", apps]`),
			[]string{
				"spec.bindings[0].matchResources.resourceRules[0].apiGroups: Invalid value: keep '*' alone in apiGroups, or " +
					"remove it: it already stands for all",
			}},
		"binding with '*/*' beside a resource": {bindingRuleWith("resources", `["*/*", pods]`),
			[]string{
				"spec.bindings[0].matchResources.resourceRules[0].resources: Invalid value: keep '*/*' alone in resources, or " +
					"remove it: it already stands for all resources and subresources",
			}},
		"binding with an unknown operation": {bindingRuleWith("operations", "[PATCH]"),
			[]string{
				"spec.bindings[0].matchResources.resourceRules[0].operations[0]: Unsupported value: \"PATCH\": supported values: " +
					"\"CREATE\", \"UPDATE\", \"DELETE\", \"CONNECT\", \"*\"",
			}},
		"binding with an empty version": {bindingRuleWith("apiVersions", `[""]`),
			[]string{
				"spec.bindings[0].matchResources.resourceRules[0].apiVersions[0]: Required value: write an API version such as v1, or '*' for all",
			}},
		"binding with resource names that are none": {bindingRuleWith("resourceNames", `[a/b, "", .., a]`),
			[]string{
				unfit("spec.bindings[0].matchResources.resourceRules[0].resourceNames[0]", "a/b", objectName),
				unfit("spec.bindings[0].matchResources.resourceRules[0].resourceNames[1]", "", objectName),
				unfit("spec.bindings[0].matchResources.resourceRules[0].resourceNames[2]", "..", objectName),
			}},
		"binding with a label key with a space": {bindingWith("matchResources",
			"{objectSelector: {matchExpressions: [{key: a b, operator: Exists}]}}"),
			[]string{unfit("spec.bindings[0].matchResources.objectSelector.matchExpressions[0].key", "a b", labelKey)}},
		"binding with In without values": {bindingWith("matchResources", "{namespaceSelector: {matchExpressions: [{key: a, operator: In}]}}"),
			[]string{
				"spec.bindings[0].matchResources.namespaceSelector.matchExpressions[0].values: Required value: add at least one " +
					"value: the operators In and NotIn need them",
			}},
		"binding with an unknown field": {bindingWith("matchResource", "{}"),
			[]string{
				"WebhookPolicy in version \"v1alpha1\" cannot be handled as a WebhookPolicy: strict decoding error: unknown field " +
					"\"spec.bindings[0].matchResource\"",
			}},
	}
}

func refusedPolicies() map[string]refusedCase {
	return map[string]refusedCase{
		"unknown field": {"bindigs: []",
			[]string{
				"WebhookPolicy in version \"v1alpha1\" cannot be handled as a WebhookPolicy: strict decoding error: unknown field \"spec.bindigs\"",
			}},
		"unknown field deep": {ruleWith("resource", "[pods]"),
			[]string{
				"WebhookPolicy in version \"v1alpha1\" cannot be handled as a WebhookPolicy: strict decoding error: unknown field " +
					"\"spec.matchConstraints.resourceRules[0].resource\"",
			}},
		"a template twice": {"podTemplates: {kinds: [{resource: jobs}, {group: kubeflow.org, version: v1, resource: jobs, " +
			"templatePath: spec.a}, {group: kubeflow.org, version: v1, resource: jobs, templatePath: spec.a}]}",
			[]string{"spec.podTemplates.kinds: Duplicate value"}},
		"101 bindings": {"bindings:" + repeat(101, "{name: b%d, validationActions: [Deny]}"),
			[]string{"spec.bindings: Too many: 101: must have at most 100 items"}},
		"101 validations": {"validations:" + repeat(101, "{expression: 'true'}"),
			[]string{"spec.validations: Too many: 101: must have at most 100 items"}},
		"101 rules": {"matchConstraints:\n  resourceRules:" + strings.ReplaceAll(repeat(101,
			`{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}`), "\n", "\n  "),
			[]string{"spec.matchConstraints.resourceRules: Too many: 101: must have at most 100 items"}},
		"101 variables": {"variables:" + repeat(101, "{name: v%d, expression: 'true'}"),
			[]string{"spec.variables: Too many: 101: must have at most 100 items"}},
		"65 match conditions": {"matchConditions:" + repeat(65, "{name: c%d, expression: 'true'}"),
			[]string{"spec.matchConditions: Too many: 65: must have at most 64 items"}},
		"nothing to do": {"validations: []\nmutations: []\nauditAnnotations: []",
			[]string{nothingToDo}},
		"null validations": {"validations: null",
			[]string{nothingToDo}},
		"null match constraints": {"matchConstraints: null",
			[]string{"spec.matchConstraints: Required value: add matchConstraints: they select the requests of this policy"}},
		"no rules": {"matchConstraints: {resourceRules: []}",
			[]string{"spec.matchConstraints.resourceRules: Required value: add at least one rule that names the requests this policy is for"}},
		"rules left out": {"matchConstraints: {namespaceSelector: {}}",
			[]string{"spec.matchConstraints.resourceRules: Required value: add at least one rule that names the requests this policy is for"}},
		"Deny and Warn": {"bindings: [{name: b, validationActions: [Deny, Warn]}]",
			[]string{"spec.bindings[0].validationActions: Invalid value: remove Warn: Deny already sends the message to the client"}},
		"the same action twice": {"bindings: [{name: b, validationActions: [Deny, Deny]}]",
			[]string{"spec.bindings[0].validationActions[1]: Duplicate value: \"Deny\""}},
		"unknown action": {"bindings: [{name: b, validationActions: [Block]}]",
			[]string{"spec.bindings[0].validationActions[0]: Unsupported value: \"Block\": supported values: \"Deny\", \"Warn\", \"Audit\""}},
		"no actions": {"bindings: [{name: b, validationActions: []}]",
			[]string{
				"spec.bindings[0].validationActions: Invalid value: 0: spec.bindings[0].validationActions in body should have at least 1 items",
			}},
		"binding name in capitals": {"bindings: [{name: Prod_1, validationActions: [Deny]}]",
			[]string{
				"spec.bindings[0].name: Invalid value: \"Prod_1\": write name with lower-case letters, digits and '-', beginning " +
					"and ending with a letter or digit",
			}},
		"binding name too long": {"bindings: [{name: " + long(64) + ", validationActions: [Deny]}]",
			[]string{"spec.bindings[0].name: Too long: may not be more than 63 bytes"}},
		"binding name twice": {"bindings: [{name: b, validationActions: [Deny]}, {name: b, validationActions: [Audit]}]",
			[]string{"spec.bindings[1]: Duplicate value: {\"name\":\"b\"}"}},
		"unknown failure policy": {"failurePolicy: Open",
			[]string{"spec.failurePolicy: Unsupported value: \"Open\": supported values: \"Fail\", \"Ignore\""}},
		"timeout 0": {"timeoutSeconds: 0",
			[]string{"spec.timeoutSeconds: Invalid value: 0: spec.timeoutSeconds in body should be greater than or equal to 1"}},
		"timeout 31": {"timeoutSeconds: 31",
			[]string{"spec.timeoutSeconds: Invalid value: 31: spec.timeoutSeconds in body should be less than or equal to 30"}},
		"exceptions of no time": {"exceptions: {maxDurationSeconds: 0}", []string{
			"spec.exceptions.maxDurationSeconds: Invalid value: 0: spec.exceptions.maxDurationSeconds in body should be greater than or equal to 1",
		}},
		"exceptions of a century": {"exceptions: {maxDurationSeconds: 3153600000}", []string{
			"spec.exceptions.maxDurationSeconds: Invalid value: 3153600000: spec.exceptions.maxDurationSeconds in body should be " +
				"less than or equal to 315360000",
		}},
		"timeout as a string": {"timeoutSeconds: 5s",
			[]string{"spec.timeoutSeconds: Invalid value: \"string\": spec.timeoutSeconds in body must be of type integer: \"string\""}},
		"unknown reason": {"validations: [{expression: 'true', reason: NotAllowed}]",
			[]string{
				"spec.validations[0].reason: Unsupported value: \"NotAllowed\": supported values: \"Unauthorized\", " +
					"\"Forbidden\", \"Invalid\", \"RequestEntityTooLarge\"",
			}},
		"message of two lines": {`validations: [{expression: 'true', message: "one\ntwo"}]`,
			[]string{"spec.validations[0].message: Invalid value: write message on one line"}},
		"message of spaces": {"validations: [{expression: 'true', message: '  '}]",
			[]string{"spec.validations[0].message: Invalid value: write what is wrong with the request, or remove message"}},
		"message too long": {"validations: [{expression: 'true', message: " + long(1025) + "}]",
			[]string{"spec.validations[0].message: Too long: may not be more than 1024 bytes"}},
		"message expression of spaces": {"validations: [{expression: 'true', messageExpression: '  '}]",
			[]string{
				"spec.validations[0].messageExpression: Invalid value: write a CEL expression that gives a string, or remove messageExpression",
			}},
		"empty expression": {"validations: [{expression: ''}]",
			[]string{"spec.validations[0].expression: Required value: write a CEL expression"}},
		"expression left out": {"validations: [{message: why}]",
			[]string{"spec.validations[0].expression: Required value"}},
		"expression too long": {"validations: [{expression: " + long(16385) + "}]",
			[]string{"spec.validations[0].expression: Too long: may not be more than 16384 bytes"}},
		"condition name with a space": {"matchConditions: [{name: a b, expression: 'true'}]",
			[]string{
				"spec.matchConditions[0].name: Invalid value: write name with letters, digits, '-', '_' and '.', with an optional " +
					"DNS subdomain and '/' before it",
			}},
		"condition without expression": {"matchConditions: [{name: a, expression: ' '}]",
			[]string{"spec.matchConditions[0].expression: Required value: write a CEL expression"}},
		"condition name twice": {"matchConditions: [{name: a, expression: 'true'}, {name: a, expression: 'true'}]",
			[]string{"spec.matchConditions[1]: Duplicate value: {\"name\":\"a\"}"}},
		"variable name with a dash": {"variables: [{name: a-b, expression: 'true'}]",
			[]string{"spec.variables[0].name: Invalid value: write name with letters, digits and '_', not beginning with a digit"}},
		"variable name reserved": {"variables: [{name: namespace, expression: 'true'}]",
			[]string{"spec.variables[0].name: Invalid value: choose another name: CEL reserves this word"}},
		"variable name too long": {"variables: [{name: " + long(64) + ", expression: 'true'}]",
			[]string{"spec.variables[0].name: Too long: may not be more than 63 bytes"}},
		"variable without expression": {"variables: [{name: a, expression: ''}]",
			[]string{"spec.variables[0].expression: Required value: write a CEL expression"}},
		"'*' beside a group": {ruleWith("apiGroups", `["*", apps]`),
			[]string{
				"spec.matchConstraints.resourceRules[0].apiGroups: Invalid value: keep '*' alone in apiGroups, or remove it: it already stands for all",
			}},
		"'*' beside a version": {ruleWith("apiVersions", `["*", v1]`),
			[]string{
				"spec.matchConstraints.resourceRules[0].apiVersions: Invalid value: keep '*' alone in apiVersions, or remove it: " +
					"it already stands for all",
			}},
		"'*' beside an operation": {ruleWith("operations", `["*", CREATE]`),
			[]string{
				"spec.matchConstraints.resourceRules[0].operations: Invalid value: keep '*' alone in operations, or remove it: it " +
					"already stands for all",
			}},
		"'*' beside a resource": {ruleWith("resources", `["*", pods]`),
			[]string{
				"spec.matchConstraints.resourceRules[0].resources: Invalid value: keep '*' in resources beside subresources only, " +
					"or remove it: it already stands for all resources",
			}},
		"'*/*' beside a resource": {ruleWith("resources", `["*/*", pods]`),
			[]string{
				"spec.matchConstraints.resourceRules[0].resources: Invalid value: keep '*/*' alone in resources, or remove it: it " +
					"already stands for all resources and subresources",
			}},
		"unknown operation": {ruleWith("operations", "[PATCH]"),
			[]string{
				"spec.matchConstraints.resourceRules[0].operations[0]: Unsupported value: \"PATCH\": supported values: " +
					"\"CREATE\", \"UPDATE\", \"DELETE\", \"CONNECT\", \"*\"",
			}},
		"no operations": {ruleWith("operations", "[]"),
			[]string{
				"spec.matchConstraints.resourceRules[0].operations: Invalid value: 0: " +
					"spec.matchConstraints.resourceRules[0].operations in body should have at least 1 items",
			}},
		"empty version": {ruleWith("apiVersions", `[""]`),
			[]string{"spec.matchConstraints.resourceRules[0].apiVersions[0]: Required value: write an API version such as v1, or '*' for all"}},
		"empty resource": {ruleWith("resources", `[""]`),
			[]string{"spec.matchConstraints.resourceRules[0].resources[0]: Required value: write a resource such as pods, or '*' for all"}},
		"resource name with a slash": {ruleWith("resourceNames", "[a/b]"),
			[]string{
				"spec.matchConstraints.resourceRules[0].resourceNames[0]: Invalid value: \"a/b\": write the name of one object: " +
					"not empty, '.' or '..', and without '/' and '%'",
			}},
		"unknown scope": {ruleWith("scope", "Global"),
			[]string{
				"spec.matchConstraints.resourceRules[0].scope: Unsupported value: \"Global\": supported values: \"Cluster\", \"Namespaced\", \"*\"",
			}},
		"rule without its fields": {"matchConstraints: {resourceRules: [{scope: Cluster}]}",
			[]string{
				"spec.matchConstraints.resourceRules[0].apiGroups: Required value",
				"spec.matchConstraints.resourceRules[0].apiVersions: Required value",
				"spec.matchConstraints.resourceRules[0].operations: Required value",
				"spec.matchConstraints.resourceRules[0].resources: Required value",
			}},
		"unknown match policy": {"matchConstraints: {matchPolicy: Loose, resourceRules: [{apiGroups: [''], apiVersions: " +
			"[v1], resources: [pods], operations: [CREATE]}]}",
			[]string{"spec.matchConstraints.matchPolicy: Unsupported value: \"Loose\": supported values: \"Exact\", \"Equivalent\""}},
		"label value with a space": {selectorWith("{matchLabels: {a: x y}}"),
			[]string{
				"spec.matchConstraints.namespaceSelector.matchLabels.a: Invalid value: \"x y\": " +
					"spec.matchConstraints.namespaceSelector.matchLabels.a in body should match '^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$'",
			}},
		"unknown selector operator": {selectorWith("{matchExpressions: [{key: a, operator: Equals, values: [x]}]}"),
			[]string{
				"spec.matchConstraints.namespaceSelector.matchExpressions[0].operator: Unsupported value: \"Equals\": supported " +
					"values: \"In\", \"NotIn\", \"Exists\", \"DoesNotExist\"",
			}},
		"In without values": {selectorWith("{matchExpressions: [{key: a, operator: In}]}"),
			[]string{
				"spec.matchConstraints.namespaceSelector.matchExpressions[0].values: Required value: add at least one value: the " +
					"operators In and NotIn need them",
			}},
		"Exists with values": {selectorWith("{matchExpressions: [{key: a, operator: Exists, values: [x]}]}"),
			[]string{
				"spec.matchConstraints.namespaceSelector.matchExpressions[0].values: Forbidden: remove values: the operators " +
					"Exists and DoesNotExist take none",
			}},
		"label key with a space": {selectorWith("{matchExpressions: [{key: a b, operator: Exists}]}"),
			[]string{
				"spec.matchConstraints.namespaceSelector.matchExpressions[0].key: Invalid value: write a label key: letters, " +
					"digits, '-', '_' and '.', with an optional DNS subdomain and '/' before it",
			}},
	}
}
