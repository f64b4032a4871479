package crd

import (
	"fmt"
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

func long(n int) string { return strings.Repeat("a", n) }

func testAccepted(t *testing.T, policies dynamic.ResourceInterface) {
	for name, fields := range map[string]string{
		"nothing but what is required": "",
		"as many bindings as allowed":  "bindings:" + repeat(100, "{name: b%d, validationActions: [Deny, Audit]}"),
		"as many validations, with the longest expression": "validations:" +
			repeat(100, `{expression: "`+long(16384)+`", message: "`+long(1024)+`", reason: Forbidden}`),
		"a message written as a block":   "validations:\n- expression: 'true'\n  message: |\n    one line\n",
		"an expression of several lines": "validations:\n- expression: |\n    true &&\n    true\n",
		"qualified names of conditions":  `matchConditions: [{name: example.com/Not_a.node, expression: "true"}, {name: b, expression: "true"}]`,
		"'*' beside a subresource":       ruleWith("resources", `["*", pods/log]`),
		"'*' alone":                      ruleWith("operations", `["*"]`),
		"a longest label":                selectorWith("{matchLabels: {example.com/a: " + long(63) + "}}"),
		"every selector operator": selectorWith(`{matchExpressions: [{key: a, operator: In, values: [x, ""]},
    {key: a, operator: NotIn, values: [x]}, {key: example.com/a, operator: Exists}, {key: a, operator: DoesNotExist}]}`),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := dryRun(t, policies, policyWith(t, fields)); err != nil {
				t.Errorf("refused: %v", err)
			}
		})
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

func refusedCases() map[string]refusedCase {
	return map[string]refusedCase{
		"unknown field": {"bindigs: []",
			[]string{"WebhookPolicy in version \"v1alpha1\" cannot be handled as a WebhookPolicy: strict decoding error: unknown field \"spec.bindigs\""}},
		"unknown field deep": {ruleWith("resource", "[pods]"),
			[]string{"WebhookPolicy in version \"v1alpha1\" cannot be handled as a WebhookPolicy: strict decoding error: unknown field \"spec.matchConstraints.resourceRules[0].resource\""}},
		"101 bindings": {"bindings:" + repeat(101, "{name: b%d, validationActions: [Deny]}"),
			[]string{"spec.bindings: Too many: 101: must have at most 100 items"}},
		"101 validations": {"validations:" + repeat(101, "{expression: 'true'}"),
			[]string{"spec.validations: Too many: 101: must have at most 100 items"}},
		"101 rules": {"matchConstraints:\n  resourceRules:" + strings.ReplaceAll(repeat(101, `{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}`), "\n", "\n  "),
			[]string{"spec.matchConstraints.resourceRules: Too many: 101: must have at most 100 items"}},
		"101 variables": {"variables:" + repeat(101, "{name: v%d, expression: 'true'}"),
			[]string{"spec.variables: Too many: 101: must have at most 100 items"}},
		"65 match conditions": {"matchConditions:" + repeat(65, "{name: c%d, expression: 'true'}"),
			[]string{"spec.matchConditions: Too many: 65: must have at most 64 items"}},
		"no validations": {"validations: []",
			[]string{"spec.validations: Invalid value: 0: spec.validations in body should have at least 1 items"}},
		"null validations": {"validations: null",
			[]string{"spec.validations: Required value"}},
		"null match constraints": {"matchConstraints: null",
			[]string{"spec.matchConstraints: Required value"}},
		"no rules": {"matchConstraints: {resourceRules: []}",
			[]string{"spec.matchConstraints.resourceRules: Required value: add at least one rule that names the requests this policy is for"}},
		"rules left out": {"matchConstraints: {namespaceSelector: {}}",
			[]string{"spec.matchConstraints.resourceRules: Required value: add at least one rule that names the requests this policy is for"}},
		"Deny and Warn": {"bindings: [{name: b, validationActions: [Deny, Warn]}]",
			[]string{"spec.bindings[0].validationActions: Invalid value: remove Warn: Deny already tells the client"}},
		"the same action twice": {"bindings: [{name: b, validationActions: [Deny, Deny]}]",
			[]string{"spec.bindings[0].validationActions[1]: Duplicate value: \"Deny\""}},
		"unknown action": {"bindings: [{name: b, validationActions: [Block]}]",
			[]string{"spec.bindings[0].validationActions[0]: Unsupported value: \"Block\": supported values: \"Deny\", \"Warn\", \"Audit\""}},
		"no actions": {"bindings: [{name: b, validationActions: []}]",
			[]string{"spec.bindings[0].validationActions: Invalid value: 0: spec.bindings[0].validationActions in body should have at least 1 items"}},
		"actions left out": {"bindings: [{name: b}]",
			[]string{"spec.bindings[0].validationActions: Required value"}},
		"binding name in capitals": {"bindings: [{name: Prod_1, validationActions: [Deny]}]",
			[]string{"spec.bindings[0].name: Invalid value: \"Prod_1\": write name with lower-case letters, digits and '-', beginning and ending with a letter or digit"}},
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
		"timeout as a string": {"timeoutSeconds: 5s",
			[]string{"spec.timeoutSeconds: Invalid value: \"string\": spec.timeoutSeconds in body must be of type integer: \"string\""}},
		"unknown reason": {"validations: [{expression: 'true', reason: NotAllowed}]",
			[]string{"spec.validations[0].reason: Unsupported value: \"NotAllowed\": supported values: \"Unauthorized\", \"Forbidden\", \"Invalid\", \"RequestEntityTooLarge\""}},
		"message of two lines": {`validations: [{expression: 'true', message: "one\ntwo"}]`,
			[]string{"spec.validations[0].message: Invalid value: write message on one line"}},
		"message of spaces": {"validations: [{expression: 'true', message: '  '}]",
			[]string{"spec.validations[0].message: Invalid value: write what is wrong with the request, or remove message"}},
		"message too long": {"validations: [{expression: 'true', message: " + long(1025) + "}]",
			[]string{"spec.validations[0].message: Too long: may not be more than 1024 bytes"}},
		"message expression of spaces": {"validations: [{expression: 'true', messageExpression: '  '}]",
			[]string{"spec.validations[0].messageExpression: Invalid value: write a CEL expression that gives a string, or remove messageExpression"}},
		"empty expression": {"validations: [{expression: ''}]",
			[]string{"spec.validations[0].expression: Required value: write a CEL expression"}},
		"expression left out": {"validations: [{message: why}]",
			[]string{"spec.validations[0].expression: Required value"}},
		"expression too long": {"validations: [{expression: " + long(16385) + "}]",
			[]string{"spec.validations[0].expression: Too long: may not be more than 16384 bytes"}},
		"condition name with a space": {"matchConditions: [{name: a b, expression: 'true'}]",
			[]string{"spec.matchConditions[0].name: Invalid value: write name with letters, digits, '-', '_' and '.', with an optional DNS subdomain and '/' before it"}},
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
			[]string{"spec.matchConstraints.resourceRules[0].apiGroups: Invalid value: keep '*' alone in apiGroups, or remove it: it already stands for all"}},
		"'*' beside a version": {ruleWith("apiVersions", `["*", v1]`),
			[]string{"spec.matchConstraints.resourceRules[0].apiVersions: Invalid value: keep '*' alone in apiVersions, or remove it: it already stands for all"}},
		"'*' beside an operation": {ruleWith("operations", `["*", CREATE]`),
			[]string{"spec.matchConstraints.resourceRules[0].operations: Invalid value: keep '*' alone in operations, or remove it: it already stands for all"}},
		"'*' beside a resource": {ruleWith("resources", `["*", pods]`),
			[]string{"spec.matchConstraints.resourceRules[0].resources: Invalid value: keep '*' in resources beside subresources only, or remove it: it already stands for all resources"}},
		"'*/*' beside a resource": {ruleWith("resources", `["*/*", pods]`),
			[]string{"spec.matchConstraints.resourceRules[0].resources: Invalid value: keep '*/*' alone in resources, or remove it: it already stands for all resources and subresources"}},
		"unknown operation": {ruleWith("operations", "[PATCH]"),
			[]string{"spec.matchConstraints.resourceRules[0].operations[0]: Unsupported value: \"PATCH\": supported values: \"CREATE\", \"UPDATE\", \"DELETE\", \"CONNECT\", \"*\""}},
		"no operations": {ruleWith("operations", "[]"),
			[]string{"spec.matchConstraints.resourceRules[0].operations: Invalid value: 0: spec.matchConstraints.resourceRules[0].operations in body should have at least 1 items"}},
		"empty version": {ruleWith("apiVersions", `[""]`),
			[]string{"spec.matchConstraints.resourceRules[0].apiVersions[0]: Required value: write an API version such as v1, or '*' for all"}},
		"empty resource": {ruleWith("resources", `[""]`),
			[]string{"spec.matchConstraints.resourceRules[0].resources[0]: Required value: write a resource such as pods, or '*' for all"}},
		"resource name with a slash": {ruleWith("resourceNames", "[a/b]"),
			[]string{"spec.matchConstraints.resourceRules[0].resourceNames[0]: Invalid value: \"a/b\": write the name of one object: not empty, '.' or '..', and without '/' and '%'"}},
		"unknown scope": {ruleWith("scope", "Global"),
			[]string{"spec.matchConstraints.resourceRules[0].scope: Unsupported value: \"Global\": supported values: \"Cluster\", \"Namespaced\", \"*\""}},
		"rule without its fields": {"matchConstraints: {resourceRules: [{scope: Cluster}]}",
			[]string{"spec.matchConstraints.resourceRules[0].apiGroups: Required value", "spec.matchConstraints.resourceRules[0].apiVersions: Required value", "spec.matchConstraints.resourceRules[0].operations: Required value", "spec.matchConstraints.resourceRules[0].resources: Required value"}},
		"unknown match policy": {"matchConstraints: {matchPolicy: Loose, resourceRules: [{apiGroups: [''], apiVersions: [v1], resources: [pods], operations: [CREATE]}]}",
			[]string{"spec.matchConstraints.matchPolicy: Unsupported value: \"Loose\": supported values: \"Exact\", \"Equivalent\""}},
		"label value with a space": {selectorWith("{matchLabels: {a: x y}}"),
			[]string{"spec.matchConstraints.namespaceSelector.matchLabels.a: Invalid value: \"x y\": spec.matchConstraints.namespaceSelector.matchLabels.a in body should match '^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$'"}},
		"unknown selector operator": {selectorWith("{matchExpressions: [{key: a, operator: Equals, values: [x]}]}"),
			[]string{"spec.matchConstraints.namespaceSelector.matchExpressions[0].operator: Unsupported value: \"Equals\": supported values: \"In\", \"NotIn\", \"Exists\", \"DoesNotExist\""}},
		"In without values": {selectorWith("{matchExpressions: [{key: a, operator: In}]}"),
			[]string{"spec.matchConstraints.namespaceSelector.matchExpressions[0].values: Required value: add at least one value: the operators In and NotIn need them"}},
		"Exists with values": {selectorWith("{matchExpressions: [{key: a, operator: Exists, values: [x]}]}"),
			[]string{"spec.matchConstraints.namespaceSelector.matchExpressions[0].values: Forbidden: remove values: the operators Exists and DoesNotExist take none"}},
		"label key with a space": {selectorWith("{matchExpressions: [{key: a b, operator: Exists}]}"),
			[]string{"spec.matchConstraints.namespaceSelector.matchExpressions[0].key: Invalid value: write a label key: letters, digits, '-', '_' and '.', with an optional DNS subdomain and '/' before it"}},
	}
}
