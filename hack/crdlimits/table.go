package main

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/ostiary/ostiary/internal/validation"
)

// Limits that several fields share. An expression's is as large as the longest
// ones people write, and small enough for the API server's budget for the
// rules below, which it computes from the largest value each may see.
const (
	maxExpression    = 16384
	maxMessage       = 1024
	maxRules         = 100
	maxEntries       = 100
	maxName          = 63
	maxSubdomain     = 253
	maxPluginConfig  = 1000 // a node selector for each of so many namespaces
	maxQualifiedName = maxSubdomain + 1 + maxName
	// maxResource holds a resource, a slash and a subresource.
	maxResource = maxName + 1 + maxName
)

const (
	// objectName is not empty, '.' or '..', and has no '/' and '%'.
	objectName    = `^(\.{0,2}[^./%][^/%]*|\.{3}[^/%]*)$`
	labelValue    = `^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$`
	qualifiedName = `^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$` // as a CEL string
	labelKey      = `^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$`
)

const (
	required = apiextensionsv1.FieldValueRequired
	invalid  = apiextensionsv1.FieldValueInvalid
)

// webhookPolicyTable holds limits, rules and descriptions that markers cannot
// express. The rules are those of the API server for the same fields of
// ValidatingAdmissionPolicy and webhook configurations, so that accepted policies
// can be registered. The rules that internal/validation repeats come from there.
func webhookPolicyTable() []amendment {
	var table []amendment
	for _, part := range [][]amendment{
		repeatedRules(), paramKind(),
		matchResources("spec.matchConstraints", "the policy"), constraintRules(),
		matchConditions(), variables(), mutations(), auditAnnotations(),
		matchResources("spec.bindings[].matchResources", "the binding"), bindingRules(), paramRefs(),
		rollouts(), typeChecking(), {{at: "spec.plugin.config", maxProperties: maxPluginConfig}},
	} {
		table = append(table, part...)
	}
	return table
}

func repeatedRules() []amendment {
	var out []amendment
	for _, r := range validation.SchemaRules() {
		out = append(out, amendment{at: r.At, rules: []apiextensionsv1.ValidationRule{
			rule(r.Field, apiextensionsv1.FieldValueErrorReason(r.Type), r.Rule, r.Message),
		}})
	}
	return out
}

func matchConditions() []amendment {
	return []amendment{
		{at: "spec.matchConditions[]", description: "A match condition is a named CEL expression.",
			rules: []apiextensionsv1.ValidationRule{
				expressionWritten(),
				rule(".name", invalid, `self.name.matches('`+qualifiedName+`')`,
					"write name with letters, digits, '-', '_' and '.', with an optional DNS subdomain and '/' before it"),
			}},
		{at: "spec.matchConditions[].name", maxLength: maxQualifiedName,
			description: `name of the condition, unique in its policy, for example exclude-nodes or
example.com/exclude-nodes.`},
		{at: "spec.matchConditions[].expression", maxLength: maxExpression,
			description: `expression is CEL and must give a bool. If it is false, the policy skips the request.
Example: !("system:nodes" in request.userInfo.groups)`},
	}
}

func variables() []amendment {
	return []amendment{
		{at: "spec.variables[]", description: "A variable is a named CEL expression.",
			rules: []apiextensionsv1.ValidationRule{
				expressionWritten(),
				rule(".name", invalid, `self.name.matches('^[A-Za-z_][A-Za-z0-9_]*$')`,
					"write name with letters, digits and '_', not beginning with a digit"),
				rule(".name", invalid, `!(self.name in ['true', 'false', 'null', 'in', 'as', 'break', 'const', 'continue', 'else', 'for', 'function', 'if', 'import', 'let', 'loop', 'package', 'namespace', 'return', 'var', 'void', 'while'])`,
					"choose another name: CEL reserves this word"),
			}},
		{at: "spec.variables[].name", maxLength: maxName,
			description: "name of the variable: later expressions use foo as variables.foo."},
		{at: "spec.variables[].expression", maxLength: maxExpression,
			description: `expression is CEL and gives the value of the variable. It has the variables of a
validation's expression, and the variables above it.`},
	}
}

// expressionWritten rejects expressions of white space only.
func expressionWritten() apiextensionsv1.ValidationRule {
	return rule(".expression", required, `self.expression.trim() != ''`, "write a CEL expression")
}

func rule(fieldPath string, reason apiextensionsv1.FieldValueErrorReason, expression, message string) apiextensionsv1.ValidationRule {
	return apiextensionsv1.ValidationRule{Rule: expression, Message: message, Reason: &reason, FieldPath: fieldPath}
}
